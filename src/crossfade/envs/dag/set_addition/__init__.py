"""Sets built by adding items one by one."""
