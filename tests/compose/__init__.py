"""The compose file's farm in podman, from images built here; see e2e/deploy/test_compose.py."""
