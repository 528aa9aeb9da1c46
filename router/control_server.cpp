#include "router/control_server.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>

#include <filesystem>
#include <utility>

#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "router/replica_changes.h"
#include "stagecoach/v1/replicas.grpc.pb.h"

namespace stagecoach::router {
namespace {

class Server final : public ControlServer, public v1::Replicas::Service {
 public:
  explicit Server(ReplicaChanges* changes) : changes_(*changes) {}
  ~Server() override {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  absl::Status Listen(const std::string& path) {
    const std::string address = "unix:" + std::filesystem::absolute(path).string();
    grpc::ServerBuilder builder;
    ApplyServerDefaults(builder, kMaxClientMessageBytes);
    int bound = 0;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &bound);
    builder.RegisterService(this);
    // A socket is open to all whom its mode lets write, from its first moment.
    const mode_t before = umask(S_IRWXG | S_IRWXO);
    server_ = builder.BuildAndStart();
    umask(before);
    if (server_ != nullptr && bound > 0) return absl::OkStatus();
    return absl::UnavailableError(fmt::format(
        "--control {}: cannot listen there: the folder must exist, and the path have fewer than "
        "108 characters",
        path));
  }

  grpc::Status List(grpc::ServerContext*, const v1::ListReplicasRequest*,
                    v1::ListReplicasResponse* response) override {
    for (v1::ReplicaStatus& one : changes_.List()) *response->add_replicas() = std::move(one);
    return grpc::Status::OK;
  }
  grpc::Status Drain(grpc::ServerContext*, const v1::DrainReplicaRequest* request,
                     v1::DrainReplicaResponse*) override {
    return ToGrpc(changes_.Drain(request->replica(), request->move()));
  }
  grpc::Status Add(grpc::ServerContext*, const v1::AddReplicaRequest* request,
                   v1::AddReplicaResponse* response) override {
    const absl::StatusOr<size_t> added =
        changes_.Add({request->addresses().begin(), request->addresses().end()});
    if (added.ok()) response->set_replica(static_cast<uint32_t>(*added));
    return ToGrpc(added.status());
  }

 private:
  ReplicaChanges& changes_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Start(const std::string& path,
                                                                    ReplicaChanges* changes) {
  auto server = std::make_unique<Server>(changes);
  if (absl::Status status = server->Listen(path); !status.ok()) return status;
  return server;
}

}  // namespace stagecoach::router
