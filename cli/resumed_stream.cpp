#include "cli/resumed_stream.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <random>
#include <vector>

namespace stagecoach::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Cut = CallEnd::Cut;

// Pauses before the first, second, ... try; the last one repeats.
constexpr std::array kPauses = {std::chrono::milliseconds(100), std::chrono::milliseconds(250),
                                std::chrono::milliseconds(500), std::chrono::milliseconds(1000)};

// Passes on each part once. A part that adds no token is sent again after a loss, because its
// position is that of the part before it. So it is held until the next token or the stream's end.
class Parts {
 public:
  explicit Parts(const PieceFn& on_piece) : on_piece_(on_piece) {}

  void Take(std::span<const v1::GenerateResponse> pieces, std::optional<uint64_t> position) {
    has_positions_ = has_positions_ || position.has_value();
    has_any_ = true;
    held_.insert(held_.end(), pieces.begin(), pieces.end());
    if (!has_positions_) return PassOn();
    const uint64_t end = position.value_or(0);
    if (end <= position_) return;
    position_ = end;
    PassOn();
  }
  void PassOn() {
    for (const v1::GenerateResponse& piece : held_) on_piece_(piece);
    held_.clear();
  }
  // The next call sends what is held again.
  void Forget() { held_.clear(); }

  uint64_t position() const { return position_; }
  bool has_any() const { return has_any_; }
  // Something was passed on, but nobody knows where in the stream that is.
  bool is_lost() const { return has_any_ && !has_positions_; }

 private:
  const PieceFn& on_piece_;
  std::vector<v1::GenerateResponse> held_;
  uint64_t position_ = 0;
  bool has_any_ = false;
  bool has_positions_ = false;
};

class Reading {
 public:
  Reading(StreamCalls& calls, const ResumePolicy& policy, Canceller& canceller,
          const PieceFn& on_piece)
      : calls_(calls),
        policy_(policy),
        canceller_(canceller),
        resumable_(policy.limit.count() > 0),
        parts_(on_piece) {}

  absl::Status Run() {
    while (true) {
      const CallEnd end = Call();
      if (end.status.ok()) {
        parts_.PassOn();
        return end.status;
      }
      if (canceller_.WaitFor({})) return Cancelled();
      if (!resumable_) return end.status;
      if (KeepsNoStreams(end)) {
        resumable_ = sent_ = false;
        continue;
      }
      if (lost_at_ && absl::IsNotFound(end.status) && parts_.position() == 0) {
        sent_ = false;  // the server never received the request, or forgot it: nothing was shown
        continue;
      }
      if (!IsWorthATry(end)) return Final(end.status);
      if (!lost_at_) {
        Lose(end.status);
      } else if (Clock::now() - *lost_at_ >= policy_.limit) {
        return Final(end.status);
      }
      const auto pause = kPauses[std::min(n_tries_++, kPauses.size() - 1)];
      if (canceller_.WaitFor(pause)) return Cancelled();
    }
  }

 private:
  CallEnd Call() {
    parts_.Forget();
    const PartFn on_part = [this](std::span<const v1::GenerateResponse> pieces,
                                  std::optional<uint64_t> position) {
      const uint64_t before = parts_.position();
      parts_.Take(pieces, position);
      if (parts_.position() == before) return;
      lost_at_.reset();
      n_tries_ = 0;
    };
    if (sent_) return calls_.Resume(parts_.position(), on_part);
    sent_ = true;
    CallEnd end = calls_.Begin(resumable_, on_part);
    if (end.cut == Cut::kUnreached) sent_ = false;
    return end;
  }

  // Another server, or one that keeps no further streams. Whether this is the reason or not, the
  // request has another try without `resumable`.
  bool KeepsNoStreams(const CallEnd& end) const {
    return !lost_at_ && !parts_.has_any() &&
           (absl::IsInvalidArgument(end.status) || absl::IsResourceExhausted(end.status));
  }

  bool IsWorthATry(const CallEnd& end) const {
    if (parts_.is_lost()) return false;
    // A server that shuts down cancels its calls.
    if (lost_at_ && (absl::IsResourceExhausted(end.status) || absl::IsCancelled(end.status))) {
      return true;
    }
    if (!absl::IsUnavailable(end.status)) return false;
    return lost_at_ || parts_.has_any() || end.cut == Cut::kBroken ||
           (end.cut == Cut::kUnreached && policy_.knows_server);
  }

  // Returns the time.
  void Lose(const absl::Status& why) {
    why_lost_ = std::string(why.message());
    lost_at_ = Clock::now();
    // The answer's text may stand in the same line of the terminal.
    const bool in_text = parts_.has_any() && isatty(STDOUT_FILENO) == 1;
    fmt::print(stderr, "{}connection lost, reconnecting\n", in_text ? "\n" : "");
  }

  absl::Status Final(const absl::Status& status) const {
    if (!lost_at_) return status;
    std::string message =
        fmt::format("the connection was lost ({}), and the answer cannot go on", why_lost_);
    if (status.message() != why_lost_) message += ": " + std::string(status.message());
    return {status.code(), message};
  }

  absl::Status Cancelled() {
    // A server that cannot be reached drops the stream by itself after some time.
    if (resumable_ && sent_ && !lost_at_) calls_.Drop();
    return absl::CancelledError("cancelled");
  }

  StreamCalls& calls_;
  const ResumePolicy policy_;
  Canceller& canceller_;
  bool resumable_;
  bool sent_ = false;  // the server may have the stream
  Parts parts_;
  std::optional<Clock::time_point> lost_at_;  // until the stream goes on
  std::string why_lost_;                      // the first error of the last loss
  size_t n_tries_ = 0;
};

}  // namespace

absl::Status ReadStream(StreamCalls& calls, const ResumePolicy& policy, Canceller& canceller,
                        const PieceFn& on_piece) {
  return Reading(calls, policy, canceller, on_piece).Run();
}

std::string NewStreamName() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
}

}  // namespace stagecoach::cli
