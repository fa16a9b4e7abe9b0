"""What programs call: the page's API and MCP tools, and OpenAI's chat API."""
