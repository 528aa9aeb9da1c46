"""The JSON schema with which throughput under a grammar is measured."""

# The array is long enough that no request ends before max_tokens.
SCHEMA = {"type": "array", "minItems": 200, "items": {
    "type": "object", "properties": {"name": {"type": "string", "maxLength": 40}, "count": {"type": "integer"},
                                     "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}}},
    "required": ["name", "count", "tags"], "additionalProperties": False}}
