"""What coding agents need: a manual that fits in their context, and a server that speaks their protocol (MCP)."""
