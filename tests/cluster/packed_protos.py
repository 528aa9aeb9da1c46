"""Python classes of packed descriptors (protoc --descriptor_set_out), for machines without grpcio-tools. Any version of
protobuf and grpcio will do, while generated modules need the versions of their generator or later ones."""
import functools
import sys
import types


def _module(name, members):
    for i, letter in enumerate(name):
        if letter == ".":
            sys.modules.setdefault(name[:i], types.ModuleType(name[:i]))
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(members)


def _stub(service, class_of):
    def connect(self, channel):
        for method in service.methods:
            sides = method.client_streaming, method.server_streaming
            kind = "_".join("stream" if streams else "unary" for streams in sides)
            setattr(self, method.name, getattr(channel, kind)(
                f"/{service.full_name}/{method.name}", request_serializer=class_of(method.input_type).SerializeToString,
                response_deserializer=class_of(method.output_type).FromString))

    return type(f"{service.name}Stub", (), {"__init__": connect})


@functools.cache
def make_importable(path):
    """Makes `from PACKAGE import FILE_pb2, FILE_pb2_grpc` work for the messages and stubs of all packed files."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.Default()
    for packed in descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file:
        pool.AddSerializedFile(packed.SerializeToString())
        file = pool.FindFileByName(packed.name)
        name = packed.name.removesuffix(".proto").replace("/", ".")
        _module(f"{name}_pb2", {message.name: message_factory.GetMessageClass(message)
                                for message in file.message_types_by_name.values()})
        _module(f"{name}_pb2_grpc", {f"{service.name}Stub": _stub(service, message_factory.GetMessageClass)
                                     for service in file.services_by_name.values()})
