"""One file per family: from its config.json to layers and weight parts.

A module here is found by its name (the `model_type` with `-` and `.` as `_`) or by its `MODEL_TYPES` and `ARCHITECTURES`; it has
`read(config) -> Decoder`. Adding a family is adding a file.
"""
