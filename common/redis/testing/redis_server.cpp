#include "common/redis/testing/redis_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <utility>

#include "common/check.h"
#include "common/unique_fd.h"

namespace stagecoach {
namespace {

constexpr int kMostAttempts = 20;

// Another program may take the port before the server does.
int FreePort() {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  SC_CHECK(bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  SC_CHECK(getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return ntohs(address.sin_port);
}

}  // namespace

RedisServer::RedisServer(std::vector<std::string> options, Link link)
    : options_(std::move(options)), link_(link) {
  for (int i = 0; i < kMostAttempts && pid_ < 0; ++i) {
    port_ = FreePort();
    TryStart();
  }
  // deploy/install-deps.sh --test installs it.
  SC_CHECK(pid_ > 0);
}

RedisServer::~RedisServer() { Kill(); }

std::string RedisServer::url() const {
  return (link_ == Link::kTls ? "rediss://127.0.0.1:" : "redis://127.0.0.1:") +
         std::to_string(port_);
}

void RedisServer::Signal(int signal) const { kill(pid_, signal); }

void RedisServer::Kill() {
  if (pid_ < 0) return;
  Signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void RedisServer::Start() { SC_CHECK(TryStart()); }

bool RedisServer::TryStart() {
  std::vector<std::string> words = {"redis-server", "--bind",   "127.0.0.1", "--save", "",
                                    "--dir",        dir_.path()};
  if (link_ == Link::kTls) words.insert(words.end(), {"--port", "0", "--tls-port"});
  if (link_ == Link::kPlain) words.emplace_back("--port");
  words.push_back(std::to_string(port_));
  words.insert(words.end(), options_.begin(), options_.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int lines[2];
  SC_CHECK(pipe2(lines, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, lines[1], STDOUT_FILENO);
  const int error = posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(lines[1]);
  FILE* const log = fdopen(lines[0], "r");
  std::string said;
  char line[512];
  while (error == 0 && said.find("Ready to accept connections") == std::string::npos &&
         fgets(line, sizeof(line), log) != nullptr) {
    said += line;
  }
  fclose(log);
  if (error != 0) pid_ = -1;
  if (error == 0 && said.find("Ready to accept connections") != std::string::npos) return true;
  Kill();
  return false;
}

}  // namespace stagecoach
