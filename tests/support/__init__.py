"""What several test modules share: lakes, models, servers, browsers."""
