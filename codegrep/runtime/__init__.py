"""Ray connection, resources, artifacts, progress: what runs stand on."""
