#include "common/flags/front_end_flags.h"

#include <fmt/format.h>

#include <array>
#include <set>
#include <utility>

#include "common/flags/checks.h"
#include "common/flags/flag_table.h"
#include "common/host_port.h"
#include "common/listen_check.h"
#include "common/status.h"

namespace stagecoach {
namespace {

void DeclareNetworkFlags(FlagTable& table, FrontEndFlags& flags) {
  table
      .Add("--grpc", flags.grpc,
           "Address of the gRPC API. With port 0 the system picks a free port. \"off\" turns gRPC "
           "off")
      ->type_name("HOST:PORT")
      ->check(AddressOrOff())
      ->capture_default_str();
  table
      .Add("--metrics", flags.metrics,
           "Address of the Prometheus page /metrics. With port 0 the system picks a free port")
      ->type_name("HOST:PORT")
      ->check(Address())
      ->capture_default_str();
  table
      .Add("--served-name", flags.served_name,
           "Name of the model for clients (default: the name of the model's folder)")
      ->type_name("NAME");
}

void DeclareAccessFlags(FlagTable& table, AccessFiles& files) {
  table
      .Add("--api-keys", files.api_keys,
           "File with API keys. Clients must send one of them over HTTP and gRPC. Each line of the "
           "file is: KEY [tenant=NAME] [weight=N] [max_priority=N] [requests_per_minute=N] "
           "(default: clients need no key)")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  CLI::Option* cert = table
                          .Add("--tls-cert", files.tls_cert,
                               "Certificate chain (PEM) of the server. HTTP and gRPC then accept "
                               "only TLS. Needs --tls-key")
                          ->type_name("FILE")
                          ->check(CLI::ExistingFile);
  CLI::Option* key = table.Add("--tls-key", files.tls_key, "Private key (PEM) of the certificate")
                         ->type_name("FILE")
                         ->check(CLI::ExistingFile);
  cert->needs(key);
  key->needs(cert);
}

void DeclareHttpLimits(FlagTable& table, HttpLimitFlags& limits) {
  table.AddSize("--http-max-body", limits.max_body_bytes,
                "Maximum size of an HTTP request's body [16MiB]");
  table.AddSize("--http-max-header", limits.max_header_bytes,
                "Maximum size of an HTTP request's header [32KiB]");
  table
      .Add("--http-max-connections", limits.max_connections,
           "Maximum number of open HTTP connections. Each HTTP stream needs one. The server "
           "refuses more")
      ->type_name("N")
      ->check(MoreThanZero())
      ->capture_default_str();
  table
      .Add("--http-max-client-connections", limits.max_client_connections,
           "Maximum number of HTTP connections from one client address. A proxy counts as one "
           "client, so raise this limit behind a proxy")
      ->type_name("N")
      ->check(MoreThanZero())
      ->capture_default_str();
  table
      .AddSeconds(
          "--http-timeout", limits.header_timeout,
          "Timeout in seconds for each of these actions of an HTTP client: begin a request, send "
          "its header, read some of the answer. The timeout for sending the body is twice as long")
      ->check(MoreThanZero());
  table
      .AddSeconds("--http-idle-timeout", limits.idle_timeout,
                  "Seconds after which the server closes an idle HTTP connection. Behind a proxy, "
                  "set this longer than the proxy's own timeout")
      ->check(MoreThanZero());
  table
      .AddSeconds("--sse-keep-alive-interval", limits.keep_alive_interval,
                  "Seconds without output after which an HTTP stream sends a comment. The comment "
                  "keeps proxies from closing a stream that waits. 0 turns this off")
      ->check(Between(0.0, 86'400.0));
}

void DeclareStreamLimits(FlagTable& table, StreamLimits& limits) {
  table
      .AddSeconds("--resume-time", limits.keep,
                  "Seconds for which a resumable stream runs and its output is kept while no "
                  "client reads it. 0: no stream is resumable")
      ->check(Between(0.0, 86'400.0));
  table.AddSize("--resume-memory", limits.max_bytes,
                "Maximum memory for the output that all resumable streams together keep [64MiB]");
  table
      .Add("--resume-streams", limits.max_streams,
           "Maximum number of resumable streams. Streams that have ended count as long as their "
           "output is kept")
      ->type_name("N")
      ->check(MoreThanZero())
      ->capture_default_str();
}

void DeclareResponseLimits(FlagTable& table, ResponseLimits& limits) {
  table
      .AddSeconds("--response-time", limits.keep,
                  "Seconds for which the server keeps a response of /v1/responses after its last "
                  "use. A client can continue a kept response by its id. 0: the server keeps none")
      ->check(Between(0.0, 2'592'000.0));
  table.AddSize("--response-memory", limits.max_bytes,
                "Maximum memory for all kept responses with their conversations [64MiB]");
}

void DeclareJournalFlags(FlagTable& table, JournalFlags& flags) {
  table
      .Add("--journal", flags.place,
           "Place of the journal, which stores the resumable streams. It is a folder on a local "
           "file system, or a Redis: redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE][?name=NAME], "
           "or rediss:// for TLS. If the router is killed, the next router takes over the loaded "
           "workers and continues the streams. With Redis, the next router can run on another "
           "machine. Each folder or NAME is for one router (default: no journal; streams end with "
           "the router)")
      ->type_name("DIR|URL")
      ->envname("STAGECOACH_JOURNAL");
  table.AddSize("--journal-size", flags.max_bytes,
                "Maximum size of the journal. A full journal drops the oldest streams [256MiB]");
}

void DeclareKvEventFlags(FlagTable& table, KvEventFlags& flags) {
  CLI::Option* endpoint =
      table
          .Add(
              "--kv-events", flags.endpoint,
              "Endpoint that publishes KV events: which prompts the prefix cache holds. The events "
              "have vLLM's format. Routers that choose a server by its prefix cache read them, "
              "such as llm-d's. tcp://*:PORT listens for subscribers; tcp://HOST:PORT connects to "
              "a subscriber that listens. The events contain the prompts' tokens, and everyone who "
              "reaches the port can read them (default: the server publishes nothing)")
          ->type_name("ENDPOINT")
          ->check(ZmqEndpoint());
  table
      .Add("--kv-events-replay", flags.replay,
           "Endpoint at which subscribers can ask for KV events that they missed. The server keeps "
           "the last 10,000 batches, up to 64 MiB (default: it keeps none)")
      ->type_name("ENDPOINT")
      ->check(ZmqEndpoint())
      ->needs(endpoint);
  table
      .Add("--kv-events-topic", flags.topic,
           "Topic of the KV events. llm-d needs kv@HOST:PORT@MODEL, where HOST:PORT is the address "
           "to which it sends requests (default: empty)")
      ->type_name("TOPIC")
      ->needs(endpoint);
}

}  // namespace

void DeclareFrontEndFlags(FlagTable& table, FrontEndFlags& flags) {
  DeclareNetworkFlags(table, flags);
  table
      .Add("--http", flags.http,
           "Address of the OpenAI-compatible HTTP API and of the web page. With port 0 the system "
           "picks a free port. \"off\" turns HTTP off")
      ->type_name("HOST:PORT")
      ->check(AddressOrOff())
      ->capture_default_str();
  DeclareAccessFlags(table, flags.access);
  table
      .Add("--cors", flags.cors,
           "Origin of a web page that may use the HTTP API, such as https://chat.example.org. * "
           "allows every origin. Can be given several times")
      ->type_name("ORIGIN");
  DeclareHttpLimits(table, flags.http_limits);
  DeclareStreamLimits(table, flags.streams);
  DeclareResponseLimits(table, flags.responses);
  DeclareJournalFlags(table, flags.journal);
  DeclareKvEventFlags(table, flags.kv_events);
  table.AddSwitch("--request-log", flags.request_log,
                  "Log one line when a request ends, with its tenant, API, tokens, times and how "
                  "it ended [on]");
  table
      .Add("--control", flags.control,
           "Unix socket for `stagecoach replicas`, which lists, drains and adds replicas. Only the "
           "user who runs the server can open it (default: no socket; the replicas are fixed)")
      ->type_name("PATH");
}

std::vector<std::string> MoveTakenAddresses(FrontEndFlags& flags, const DefaultAddresses& which) {
  constexpr uint32_t kMostTries = 100;
  struct Place {
    const char* flag;
    std::string* address;
    bool moves;
  };
  const std::array<Place, 3> places = {{{"--grpc", &flags.grpc, which.grpc},
                                        {"--http", &flags.http, which.http},
                                        {"--metrics", &flags.metrics, which.metrics}}};
  std::set<std::string> taken;  // ports of ours
  for (const Place& place : places) {
    if (!place.moves) taken.insert(SplitHostPort(*place.address).port);
  }
  std::vector<std::string> moves;
  for (const Place& place : places) {
    if (!place.moves || *place.address == "off") continue;
    const HostPort first = SplitHostPort(*place.address);
    const auto port = static_cast<uint32_t>(std::stoul(first.port));
    for (uint32_t i = 0; i < kMostTries; ++i) {
      const std::string next = fmt::format("{}", port + i);
      const std::string address = fmt::format("{}:{}", first.host, next);
      if (taken.contains(next) || !CheckCanListen(place.flag, address).ok()) continue;
      if (i > 0) {
        moves.push_back(fmt::format("port {} is taken, so {} is {}", port, place.flag, address));
      }
      *place.address = address;
      break;
    }
    taken.insert(SplitHostPort(*place.address).port);
  }
  return moves;
}

absl::Status CheckAddresses(const FrontEndFlags& flags) {
  const std::array<std::pair<const char*, const std::string*>, 3> all = {
      {{"--grpc", &flags.grpc}, {"--http", &flags.http}, {"--metrics", &flags.metrics}}};
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& [flag, address] = all[i];
    if (*address == "off") continue;
    for (size_t j = 0; j < i && !address->ends_with(":0"); ++j) {
      if (*address != *all[j].second) continue;
      return absl::InvalidArgumentError(fmt::format(
          "{} and {} are both {}: give each an address of its own", all[j].first, flag, *address));
    }
    SC_RETURN_IF_ERROR(CheckCanListen(flag, *address));
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
