"""Times and memory compared with the tools a user would otherwise take: same data, same run, ratios printed."""
