"""JSON schemas for kubeconform, from the API's own definitions: schemas.py FOLDER [CRD.yaml...]

The definitions come from modules that `go mod download` fetches, and from definitions/ for those that no module has;
nothing is generated from the chart. An object schema with named properties accepts no other properties: a misspelled
field is an error, as in a server with strict validation.
"""
import json
import pathlib
import subprocess
import sys

import yaml

KUBERNETES = "k8s.io/kubernetes@v1.35.4"
CRDS = {"github.com/prometheus-operator/prometheus-operator@v0.85.0": ["example/prometheus-operator-crd/*monitors.yaml"],
        "github.com/kedacore/keda/v2@v2.21.0": ["config/crd/bases/keda.sh_scaledobjects.yaml"]}


def module_dir(module):
    answer = subprocess.run(["go", "mod", "download", "-json", module], cwd="/", check=True, capture_output=True, text=True)
    return pathlib.Path(json.loads(answer.stdout)["Dir"])


def strict(schema):
    """The same schema, but it rejects unknown fields and accepts numbers where the API writes a string or a number."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        return {"type": ["string", "integer"]}
    new = {}
    for key, value in schema.items():
        if key == "properties":  # keys here are field names, not keywords
            new[key] = {name: strict(field) for name, field in value.items()}
        elif key != "format" and not key.startswith("x-kubernetes-"):
            new[key] = strict(value)
    if "properties" in new and not schema.get("x-kubernetes-preserve-unknown-fields"):
        new.setdefault("additionalProperties", False)
    return new


def reachable(definitions, name, found):
    if name in found:
        return found
    found[name] = definitions[name]
    for reference in references(definitions[name]):
        reachable(definitions, reference, found)
    return found


def references(schema):
    if isinstance(schema, list):
        for one in schema:
            yield from references(one)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                yield value.removeprefix("#/definitions/")
            else:
                yield from references(value)


def write(folder, group, version, kind, schema):
    # File name pattern of kubeconform: {{.ResourceKind}}{{.KindSuffix}}
    parts = [kind.lower(), *filter(None, [group.split(".")[0]]), version.lower()]
    (folder / ("-".join(parts) + ".json")).write_text(json.dumps(schema))


def kubernetes_schemas(folder, sources):
    swagger = json.loads((sources / "api/openapi-spec/swagger.json").read_text())
    definitions = {name: strict(schema) for name, schema in swagger["definitions"].items()}
    quantity = "io.k8s.apimachinery.pkg.api.resource.Quantity"
    definitions[quantity] = {"type": ["string", "number"]}
    for name, schema in swagger["definitions"].items():
        for gvk in schema.get("x-kubernetes-group-version-kind", []):
            if len(schema["x-kubernetes-group-version-kind"]) == 1:
                write(folder, gvk["group"], gvk["version"], gvk["kind"],
                      {"$ref": f"#/definitions/{name}", "definitions": reachable(definitions, name, {})})
    return definitions


def custom_schemas(folder, paths, kubernetes):
    """`kubernetes`: definitions to which a CRD's schema may refer."""
    for path in paths:
        for crd in filter(None, yaml.load_all(path.read_text(), yaml.CSafeLoader)):
            spec = crd["spec"]
            for version in spec["versions"]:
                schema = strict(version["schema"]["openAPIV3Schema"])
                schema["properties"]["metadata"] = {"type": "object"}
                schema["definitions"] = {}
                for name in set(references(schema)):
                    reachable(kubernetes, name, schema["definitions"])
                write(folder, spec["group"], version["name"], spec["names"]["kind"], schema)


def main():
    kubernetes = module_dir(KUBERNETES)
    crds = [path for module, globs in CRDS.items() for glob in globs for path in sorted(module_dir(module).glob(glob))]
    folder = pathlib.Path(sys.argv[1])  # created only now: without the modules the folder does not exist, and its tests are skipped
    folder.mkdir(parents=True, exist_ok=True)
    definitions = kubernetes_schemas(folder, kubernetes)
    crds += sorted((pathlib.Path(__file__).parent / "definitions").glob("*.yaml"))
    custom_schemas(folder, crds + [pathlib.Path(path) for path in sys.argv[2:]], definitions)


if __name__ == "__main__":
    main()
