"""The wire's shapes: what clients send and what they get. Nothing outside `server` knows them."""
