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
           "Address of the gRPC API. Port 0 picks a free port; \"off\" disables gRPC")
      ->type_name("HOST:PORT")
      ->check(AddressOrOff())
      ->capture_default_str();
  table
      .Add("--metrics", flags.metrics,
           "Address of the Prometheus page /metrics. Port 0 picks a free port")
      ->type_name("HOST:PORT")
      ->check(Address())
      ->capture_default_str();
  table
      .Add("--served-name", flags.served_name,
           "Model name that clients see (default: the model folder's name)")
      ->type_name("NAME");
}

void DeclareAccessFlags(FlagTable& table, AccessFiles& files) {
  table
      .Add("--api-keys", files.api_keys,
           "File with the API keys that clients must send over HTTP and gRPC, one per line: "
           "KEY [tenant=NAME] [weight=N] [max_priority=N] [requests_per_minute=N] (default: "
           "no key is needed)")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  CLI::Option* cert =
      table
          .Add("--tls-cert", files.tls_cert,
               "Certificate chain (PEM) of the server; HTTP and gRPC then use TLS. Needs --tls-key")
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
                "Largest body of an HTTP request [16MiB]");
  table.AddSize("--http-max-header", limits.max_header_bytes,
                "Largest header of an HTTP request [32KiB]");
  table
      .Add("--http-max-connections", limits.max_connections,
           "Maximum number of HTTP connections, and so HTTP streams, that are open at the "
           "same time; more are refused")
      ->type_name("N")
      ->check(MoreThanZero())
      ->capture_default_str();
  table
      .Add("--http-max-client-connections", limits.max_client_connections,
           "Maximum number of HTTP connections from one client address. A proxy in front of "
           "the server counts as one client: raise it there")
      ->type_name("N")
      ->check(MoreThanZero())
      ->capture_default_str();
  table
      .AddSeconds("--http-timeout", limits.header_timeout,
                  "Timeout in seconds for an HTTP client to begin a request, to send its header, "
                  "and to take some of its answer. The body may take twice as long")
      ->check(MoreThanZero());
  table
      .AddSeconds("--http-idle-timeout", limits.idle_timeout,
                  "Seconds for which an idle HTTP connection is kept open between two requests. It "
                  "must be longer than that of a proxy in front of the server")
      ->check(MoreThanZero());
  table
      .AddSeconds("--sse-keep-alive-interval", limits.keep_alive_interval,
                  "Seconds of silence after which an HTTP stream sends a comment, so that proxies "
                  "do not close a waiting stream; 0 disables it")
      ->check(Between(0.0, 86'400.0));
}

void DeclareStreamLimits(FlagTable& table, StreamLimits& limits) {
  table
      .AddSeconds("--resume-time", limits.keep,
                  "Seconds for which a resumable stream keeps running and is stored while no "
                  "client reads it; 0: streams are not resumable")
      ->check(Between(0.0, 86'400.0));
  table.AddSize("--resume-memory", limits.max_bytes,
                "Memory for the stored output of all resumable streams together [64MiB]");
  table
      .Add("--resume-streams", limits.max_streams,
           "Maximum number of resumable streams at the same time, including ended ones that "
           "are still stored")
      ->type_name("N")
      ->check(MoreThanZero())
      ->capture_default_str();
}

void DeclareResponseLimits(FlagTable& table, ResponseLimits& limits) {
  table
      .AddSeconds("--response-time", limits.keep,
                  "Seconds since its last use for which a response of /v1/responses can be "
                  "continued by its id; 0: responses are not kept")
      ->check(Between(0.0, 2'592'000.0));
  table.AddSize("--response-memory", limits.max_bytes,
                "Memory for all kept responses and their conversations [64MiB]");
}

void DeclareJournalFlags(FlagTable& table, JournalFlags& flags) {
  table
      .Add("--journal", flags.place,
           "Where the journal of resumable streams is: a folder on a local file system, or the URL "
           "of "
           "a Redis, redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE][?name=NAME], rediss:// with "
           "TLS. A "
           "router that is killed is started again, takes over the loaded workers and goes on with "
           "the "
           "streams; with Redis also on another machine. One router per folder or NAME (default: "
           "streams end with the router)")
      ->type_name("DIR|URL")
      ->envname("STAGECOACH_JOURNAL");
  table.AddSize("--journal-size", flags.max_bytes,
                "Largest size of the journal; the oldest streams are given up when it is full "
                "[256MiB]");
}

void DeclareKvEventFlags(FlagTable& table, KvEventFlags& flags) {
  CLI::Option* endpoint =
      table
          .Add("--kv-events", flags.endpoint,
               "Where to publish which prompts the prefix cache holds, in vLLM's form, for routers "
               "that choose between servers by it, such as llm-d's: tcp://*:PORT listens for "
               "them, tcp://HOST:PORT connects to one that listens. The events contain the "
               "prompts' tokens, and anybody who reaches the port can read them (default: nothing "
               "is published)")
          ->type_name("ENDPOINT")
          ->check(ZmqEndpoint());
  table
      .Add("--kv-events-replay", flags.replay,
           "Where to listen for those who have missed KV events: they can ask for the last 10,000 "
           "batches, but no more than 64 MiB (default: past events cannot be asked for)")
      ->type_name("ENDPOINT")
      ->check(ZmqEndpoint())
      ->needs(endpoint);
  table
      .Add("--kv-events-topic", flags.topic,
           "Topic of the KV events. llm-d wants kv@HOST:PORT@MODEL, with the address at which it "
           "sends requests to this server (default: empty)")
      ->type_name("TOPIC")
      ->needs(endpoint);
}

}  // namespace

void DeclareFrontEndFlags(FlagTable& table, FrontEndFlags& flags) {
  DeclareNetworkFlags(table, flags);
  table
      .Add("--http", flags.http,
           "Address of the OpenAI-compatible HTTP API and the web page. Port 0 picks a free "
           "port; \"off\" disables HTTP")
      ->type_name("HOST:PORT")
      ->check(AddressOrOff())
      ->capture_default_str();
  DeclareAccessFlags(table, flags.access);
  table
      .Add("--cors", flags.cors,
           "Origin of a web page that may use the HTTP API, such as "
           "https://chat.example.org; * allows all. Can be given several times")
      ->type_name("ORIGIN");
  DeclareHttpLimits(table, flags.http_limits);
  DeclareStreamLimits(table, flags.streams);
  DeclareResponseLimits(table, flags.responses);
  DeclareJournalFlags(table, flags.journal);
  DeclareKvEventFlags(table, flags.kv_events);
  table.AddSwitch("--request-log", flags.request_log,
                  "Log one line for each request that has ended: tenant, API, tokens, times, and "
                  "how it ended [on]");
  table
      .Add("--control", flags.control,
           "Unix socket at which `stagecoach replicas` lists, drains and adds replicas. Only this "
           "user may open it (default: replicas cannot be changed)")
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
