#include "cli/resumed_stream.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace stagecoach::cli {
namespace {

using Cut = CallEnd::Cut;

struct Part {
  std::string text;
  std::optional<uint64_t> position;
};

// What one call says before it ends.
struct Script {
  std::vector<Part> parts;
  CallEnd end;
};

CallEnd Broken() { return {.status = absl::UnavailableError("gone"), .cut = Cut::kBroken}; }
CallEnd Unreached() {
  return {.status = absl::UnavailableError("refused"), .cut = Cut::kUnreached};
}

// Answers the calls of a stream one after the other; the last script repeats. `calls` names them:
// "begin", "plain" (not resumable), the position of a resume, "drop".
class ScriptedCalls final : public StreamCalls {
 public:
  explicit ScriptedCalls(std::vector<Script> scripts) : scripts_(std::move(scripts)) {}

  CallEnd Begin(bool resumable, const PartFn& on_part) override {
    return Say(resumable ? "begin" : "plain", on_part);
  }
  CallEnd Resume(uint64_t from, const PartFn& on_part) override {
    return Say(std::to_string(from), on_part);
  }
  void Drop() override { calls += "drop "; }

  std::string calls;

 private:
  CallEnd Say(const std::string& name, const PartFn& on_part) {
    calls += name + " ";
    const Script& script = scripts_[next_ + 1 < scripts_.size() ? next_++ : next_];
    for (const Part& part : script.parts) {
      v1::GenerateResponse piece;
      piece.set_text(part.text);
      on_part({&piece, 1}, part.position);
    }
    return script.end;
  }

  const std::vector<Script> scripts_;
  size_t next_ = 0;
};

struct Heard {
  std::string text, calls;
  absl::Status status;
};

Heard Read(std::vector<Script> scripts,
           const ResumePolicy& policy = {.limit = std::chrono::seconds(60)}) {
  ScriptedCalls calls(std::move(scripts));
  Canceller canceller;
  Heard heard;
  heard.status = ReadStream(calls, policy, canceller,
                            [&](const v1::GenerateResponse& piece) { heard.text += piece.text(); });
  heard.calls = calls.calls;
  return heard;
}

TEST_CASE("a stream goes on where its connection broke, as often as that happens") {
  const Heard heard = Read({{{{"<", 0}, {"a", 1}, {"b", 2}}, Broken()},
                            {{}, Unreached()},
                            {{{"c", 3}}, Broken()},
                            {{{"d", 4}, {">", 4}}, {}}});
  CHECK(heard.status.ok());
  CHECK(heard.text == "<abcd>");
  CHECK(heard.calls == "begin 2 2 3 ");
}

TEST_CASE("parts that the server sends again are passed on once") {
  SECTION("a part without tokens, before the first token") {
    CHECK(Read({{{{"<", 0}}, Broken()}, {{{"<", 0}, {"a", 1}}, {}}}).text == "<a");
  }
  SECTION("a part without tokens, at the end") {
    CHECK(Read({{{{"a", 1}, {">", 1}}, Broken()}, {{{">", 1}}, {}}}).text == "a>");
  }
  SECTION("an event before the one that carries their id") {
    CHECK(Read({{{{"a", 1}, {"b", std::nullopt}}, Broken()}, {{{"b", std::nullopt}, {"c", 3}}, {}}})
              .text == "abc");
  }
}

TEST_CASE("a request that the server never received is sent again") {
  const Heard heard =
      Read({{{}, Broken()}, {{}, {.status = absl::NotFoundError("no stream")}}, {{{"a", 1}}, {}}});
  CHECK(heard.status.ok());
  CHECK(heard.text == "a");
  CHECK(heard.calls == "begin 0 begin ");
}

TEST_CASE("a server that keeps no streams gets the request without resumable") {
  const Heard heard = Read({{{}, {.status = absl::InvalidArgumentError("keeps no streams")}},
                            {{{"a", std::nullopt}, {"b", std::nullopt}}, Broken()}});
  CHECK(absl::IsUnavailable(heard.status));
  CHECK(heard.text == "ab");
  CHECK(heard.calls == "begin plain ");
}

TEST_CASE("a stream without positions is passed on at once, and not asked for again") {
  const Heard heard = Read({{{{"a", std::nullopt}, {"b", std::nullopt}}, Broken()}});
  CHECK(heard.status.message() == "gone");
  CHECK(heard.text == "ab");
  CHECK(heard.calls == "begin ");
}

TEST_CASE("final errors end a stream at once") {
  SECTION("the stream is gone") {
    const Heard heard =
        Read({{{{"a", 1}}, Broken()}, {{}, {.status = absl::NotFoundError("no stream")}}});
    CHECK(absl::IsNotFound(heard.status));
    CHECK(heard.status.message() ==
          "the connection was lost (gone), and the answer cannot go on: no stream");
    CHECK(heard.calls == "begin 1 ");
  }
  SECTION("nobody has ever answered at the address") {
    CHECK(Read({{{}, Unreached()}}).calls == "begin ");
  }
  SECTION("the server refuses the request") {
    const Heard heard = Read({{{}, {.status = absl::UnavailableError("shutting down")}}});
    CHECK(heard.status.message() == "shutting down");
    CHECK(heard.calls == "begin ");
  }
}

TEST_CASE("a server that answered before may be away when the request comes") {
  const Heard heard = Read({{{}, Unreached()}, {{{"a", 1}}, {}}},
                           {.limit = std::chrono::seconds(60), .knows_server = true});
  CHECK(heard.text == "a");
  CHECK(heard.calls == "begin begin ");
}

TEST_CASE("after the limit, the last error is reported") {
  const Heard heard =
      Read({{{{"a", 1}}, Broken()}, {{}, Unreached()}}, {.limit = std::chrono::milliseconds(1)});
  CHECK(absl::IsUnavailable(heard.status));
  CHECK(heard.status.message() ==
        "the connection was lost (gone), and the answer cannot go on: refused");
}

TEST_CASE("a cancelled stream also ends on the server, and a wait for the server ends") {
  Canceller canceller;
  const ResumePolicy policy = {.limit = std::chrono::hours(1)};
  SECTION("during the answer") {
    ScriptedCalls calls({{{{"a", 1}}, {.status = absl::CancelledError("")}}});
    CHECK(absl::IsCancelled(
        ReadStream(calls, policy, canceller, [&](const auto&) { canceller.Cancel(); })));
    CHECK(calls.calls == "begin drop ");
  }
  SECTION("while it reconnects") {
    ScriptedCalls calls({{{{"a", 1}}, Broken()}, {{}, Unreached()}});
    std::jthread user;
    const PieceFn on_piece = [&](const v1::GenerateResponse&) {
      user = std::jthread([&canceller] { canceller.Cancel(); });
    };
    CHECK(absl::IsCancelled(ReadStream(calls, policy, canceller, on_piece)));
  }
}

}  // namespace
}  // namespace stagecoach::cli
