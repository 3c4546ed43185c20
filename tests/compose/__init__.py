"""The compose file's farm in podman, from images that are built here; see e2e/test_compose.py."""
