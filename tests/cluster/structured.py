"""Requests with grammars, for tests of structured output."""
import json
import pathlib

import protos

protos.make_importable()

from stagecoach.v1 import inference_pb2 as pb  # noqa: E402

SCHEMAS = [json.loads(line) for line in
           (pathlib.Path(__file__).parent / "data" / "json_schemas.jsonl").read_text().splitlines()]

# Schemas of applications, as their libraries write them.
APP_SCHEMAS = [
    {"type": "object", "properties": {
        "answer": {"type": "string"}, "sources": {"type": "array", "items": {"type": "integer"}, "maxItems": 3}},
        "required": ["answer", "sources"], "additionalProperties": False},
    {"$defs": {"Step": {"type": "object", "properties": {"explanation": {"type": "string", "maxLength": 20},
                                                        "output": {"type": "string", "maxLength": 20}},
                        "required": ["explanation", "output"], "additionalProperties": False}},
     "type": "object", "properties": {"steps": {"type": "array", "items": {"$ref": "#/$defs/Step"}, "maxItems": 2},
                                      "final_answer": {"type": "string", "maxLength": 9}},
     "required": ["steps", "final_answer"], "additionalProperties": False},
    {"type": "object", "properties": {
        "name": {"type": "string", "pattern": "^[A-Z][a-z]{1,9}$"}, "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "email": {"type": "string", "format": "email"}, "born": {"type": "string", "format": "date"},
        "score": {"type": "number", "minimum": -1.5, "exclusiveMaximum": 2.25}, "nick": {"type": ["string", "null"]}},
        "required": ["name", "age", "email", "born", "score", "nick"], "additionalProperties": False},
    {"type": "object", "properties": {"pet": {"oneOf": [
        {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind", "lives"],
         "additionalProperties": False},
        {"type": "object", "properties": {"kind": {"const": "dog"}, "barks": {"type": "boolean"}}, "required": ["kind"],
         "additionalProperties": False}]}}, "required": ["pet"], "additionalProperties": False},
    {"type": "object", "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
     "required": ["value", "next"], "additionalProperties": False},
    {"type": "array", "minItems": 2, "maxItems": 4, "items": {"enum": ["red", "green", 3, None, "größer", "a\"b\\c\n"]}},
    {"type": "object", "additionalProperties": {"type": "number"}, "minProperties": 1, "maxProperties": 3},
    {"type": "object", "patternProperties": {"^x_[a-z]{1,3}$": {"type": "boolean"}}, "additionalProperties": False},
]


def closing_bias(tokenizer_dir):
    """Logit bias for tokens that end strings and containers; without it a random model would write for ever."""
    vocabulary = json.loads((pathlib.Path(tokenizer_dir) / "tokenizer.json").read_text())["model"]["vocab"]
    return {vocabulary[token]: bias for token, bias in {'"': 9.0, "}": 9.0, "]": 9.0, ",": 3.0}.items() if token in vocabulary}


def sampling(seed=1, max_tokens=200, **fields):
    """Temperature 2, so that everything that a grammar allows is sampled."""
    return pb.SamplingParams(temperature=2.0, seed=seed, max_tokens=max_tokens, **fields)


def json_schema(schema, **fields):
    return sampling(grammar=pb.Grammar(json_schema=json.dumps(schema)), **fields)
