"""What this host has: processors, accelerators, interfaces, and the settings they call for."""
