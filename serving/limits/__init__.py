"""What an endpoint allows: requests and tokens a minute, and money."""
