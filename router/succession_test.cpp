// A router goes on with the streams of the one before, which is "killed" by a copy of its journal's
// files while it runs.
#include "router/succession.h"

#include <filesystem>
#include <string>
#include <vector>

#include "common/temp_dir.h"
#include "router/frontend/http/testing/http_house.h"

namespace stagecoach::router {
namespace {

std::unique_ptr<Journal> OpenIn(const TempDir& dir) {
  FrontEndFlags flags;
  flags.journal.place = dir.path();
  auto journal = OpenJournal(flags);
  REQUIRE(journal.ok());
  REQUIRE(*journal != nullptr);
  return *std::move(journal);
}

// What a killed router leaves. The WAL comes last, so the copy may be of any moment.
void CopyJournal(const TempDir& from, const TempDir& to) {
  for (const char* name : {"journal.sqlite", "journal.sqlite-wal"}) {
    std::filesystem::copy_file(from.File(name), to.File(name));
  }
}

void AwaitStreams(const Journal& journal, uint64_t n) {
  while (journal.Read().n_streams < n) {
  }
}

v1::GenerateRequest Request(const std::string& id, uint32_t max_tokens, uint32_t n = 1) {
  v1::GenerateRequest request;
  request.set_text("Hello " + id);
  request.set_request_id(id);
  request.set_resumable(true);
  request.mutable_sampling()->set_n(n);
  request.mutable_sampling()->set_ignore_eos(true);
  request.mutable_sampling()->set_logprobs(2);
  request.mutable_sampling()->set_max_tokens(max_tokens);
  return request;
}

struct Call {
  Call(FrontHouse& house, const v1::GenerateRequest& request)
      : reader(house.stub->Generate(&context, request)) {}

  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
};

std::vector<v1::GenerateResponse> Resume(FrontHouse& house, const std::string& id, uint64_t from) {
  v1::ResumeRequest request;
  request.set_request_id(id);
  request.set_from(from);
  grpc::ClientContext context;
  const auto reader = house.stub->Resume(&context, request);
  std::vector<v1::GenerateResponse> messages;
  for (v1::GenerateResponse message; reader->Read(&message);) messages.push_back(message);
  CHECK(reader->Finish().ok());
  return messages;
}

std::vector<std::string> Bytes(const std::vector<v1::GenerateResponse>& messages,
                               bool with_timing) {
  std::vector<std::string> bytes;
  for (v1::GenerateResponse message : messages) {
    if (!with_timing) message.clear_timing();
    bytes.push_back(message.SerializeAsString());
  }
  return bytes;
}

TEST_CASE("gRPC streams go on: one that ended, one in the middle, one before its first token") {
  const TempDir dir, after;
  const auto journal = OpenIn(dir);
  FrontHouse house({.hold_results = true}, FrontHouse::Config(), {.journal = journal.get()});
  Call ended(house, Request("ended", 2));
  house.WaitUntilRunning(1);
  house.pipeline.Release(2);
  for (v1::GenerateResponse message; ended.reader->Read(&message);) {
  }
  CHECK(ended.reader->Finish().ok());
  Call running(house, Request("running", 40));
  house.WaitUntilRunning(1);
  const Call choices(house, Request("choices", 30, 2));
  house.pipeline.Release(12);
  std::vector<v1::GenerateResponse> heard;
  for (v1::GenerateResponse message; heard.size() < 3 && running.reader->Read(&message);) {
    heard.push_back(message);
  }
  const Call begun(house, Request("begun", 5));
  AwaitStreams(*journal, 4);
  CopyJournal(dir, after);
  house.pipeline.ReleaseAll();

  const auto next_journal = OpenIn(after);
  CHECK(next_journal->router().lease_holder() == journal->router().lease_holder());
  FrontHouse next({}, FrontHouse::Config(), {.journal = next_journal.get()});
  ContinueStreams(*next.frontend, *next_journal);
  CHECK(Bytes(Resume(next, "ended", 0), true) == Bytes(Resume(house, "ended", 0), true));
  const auto whole = Bytes(Resume(house, "running", 0), false);
  CHECK(Bytes(Resume(next, "running", 0), false) == whole);
  for (const auto& message : Resume(next, "running", heard.back().position())) {
    heard.push_back(message);
  }
  CHECK(Bytes(heard, false) == whole);
  CHECK(Tokens(Resume(next, "choices", 0), 2) == Tokens(Resume(house, "choices", 0), 2));
  CHECK(Tokens(Resume(next, "begun", 0), 1) == Tokens(Resume(house, "begun", 0), 1));
  next.WaitUntilIdle();
}

// The body of a chunked answer.
std::string Joined(std::string_view chunks) {
  std::string body;
  while (true) {
    const size_t n_bytes =
        std::stoul(std::string(chunks.substr(0, chunks.find("\r\n"))), nullptr, 16);
    if (n_bytes == 0) return body;
    chunks.remove_prefix(chunks.find("\r\n") + 2);
    body += chunks.substr(0, n_bytes);
    chunks.remove_prefix(n_bytes + 2);
  }
}

TEST_CASE("HTTP streams go on with the same bytes") {
  const TempDir dir, after;
  const auto journal = OpenIn(dir);
  http::HttpHouse first({.hold_results = true}, 1, FrontHouse::Config(), http::HttpLimits(), {},
                        journal.get());
  http::Client client(first);
  client.Ask(R"({"prompt": "Hello", "ignore_eos": true, "max_tokens": 20, "stream": true,
                 "logprobs": 2, "stream_options": {"resumable": true, "include_usage": true},
                 "request_id": "mine"})");
  first.house.WaitUntilRunning(1);
  first.house.pipeline.Release(5);
  client.Until("id: 2\n");
  CopyJournal(dir, after);

  const auto next_journal = OpenIn(after);
  http::HttpHouse next({}, 1, FrontHouse::Config(), http::HttpLimits(), {}, next_journal.get());
  ContinueStreams(*next.house.frontend, *next_journal);
  const auto read = [](http::HttpHouse& house) {
    http::Client reader(house);
    reader.Get("/v1/streams/cmpl-mine?from=0");
    CHECK(reader.Until("\r\n\r\n").starts_with("HTTP/1.1 200"));
    return Joined(reader.Until(http::kLastEvent));
  };
  const std::string resumed = read(next);
  first.house.pipeline.ReleaseAll();
  CHECK(resumed == read(first));
}

TEST_CASE("a stream that is cancelled does not come back") {
  const TempDir dir, after;
  const auto journal = OpenIn(dir);
  FrontHouse house({.hold_results = true}, FrontHouse::Config(), {.journal = journal.get()});
  const Call kept(house, Request("kept", 5)), cancelled(house, Request("cancelled", 5));
  AwaitStreams(*journal, 2);
  grpc::ClientContext context;
  v1::CancelRequest cancel;
  cancel.set_request_id("cancelled");
  v1::CancelResponse done;
  REQUIRE(house.stub->Cancel(&context, cancel, &done).ok());
  while (journal->Read().n_streams > 1) {
  }
  CopyJournal(dir, after);
  house.pipeline.ReleaseAll();
  const auto streams = OpenIn(after)->TakeStreams();
  REQUIRE(streams.size() == 1);
  CHECK(streams[0].record.request_id() == "kept");
}

TEST_CASE("without a flag there is no journal") {
  const auto journal = OpenJournal({});
  REQUIRE(journal.ok());
  CHECK(*journal == nullptr);
}

}  // namespace
}  // namespace stagecoach::router
