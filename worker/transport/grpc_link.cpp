#include "worker/transport/grpc_link.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/unix_time.h"

namespace stagecoach::worker {

const char* ChannelName(Channel channel) {
  switch (channel) {
    case Channel::kMetadata:
      return "metadata";
    case Channel::kHidden:
      return "hidden";
    case Channel::kTokens:
      return "tokens";
  }
  return "?";
}

GrpcLink::GrpcLink(Target target, std::shared_ptr<grpc::Channel> channel, size_t queue_frames,
                   Events events)
    : target_(std::move(target)), queue_frames_(queue_frames), events_(std::move(events)) {
  stub_ = v1::StageLink::NewStub(std::move(channel));
  context_.set_wait_for_ready(true);
  switch (target_.channel) {
    case Channel::kMetadata:
      writer_ = stub_->PrepareAsyncMetadata(&context_, &ack_, &completions_);
      break;
    case Channel::kHidden:
      writer_ = stub_->PrepareAsyncHidden(&context_, &ack_, &completions_);
      break;
    case Channel::kTokens:
      writer_ = stub_->PrepareAsyncTokens(&context_, &ack_, &completions_);
      break;
  }
  writer_->StartCall(reinterpret_cast<void*>(kStarted));
  thread_ = std::thread([this] { Run(); });
}

GrpcLink::~GrpcLink() {
  Close(absl::CancelledError("the link has ended"));
  thread_.join();
}

std::string GrpcLink::PeerName() const {
  return absl::StrCat("stage ", target_.peer_stage, " at ", target_.address);
}

bool GrpcLink::accepted() const {
  MutexLock lock(mutex_);
  return accepted_;
}

absl::Status GrpcLink::Send(uint64_t step, std::string payload) {
  MutexLock lock(mutex_);
  changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !closed_.ok() || queue_.size() < queue_frames_;
  });
  if (!closed_.ok()) return closed_;
  Message message{step, std::move(payload), UnixNanoseconds()};
  if (writing_ || !ready_) {
    queue_.push_back(std::move(message));
    return absl::OkStatus();
  }
  WriteLocked(std::move(message));
  return absl::OkStatus();
}

void GrpcLink::Close(absl::Status reason) {
  MutexLock lock(mutex_);
  if (closed_.ok()) closed_ = std::move(reason);
  queue_.clear();
  context_.TryCancel();
  changed_.notify_all();
}

void GrpcLink::WriteLocked(Message message) {
  frame_.set_step(message.step);
  *frame_.mutable_payload() = std::move(message.payload);
  frame_.set_sent_unix_ns(message.sent_unix_ns);
  WriteLocked();
}

void GrpcLink::WriteLocked() {
  writing_ = true;
  writer_->Write(frame_, reinterpret_cast<void*>(kWritten));
}

void GrpcLink::FinishLocked() { writer_->Finish(&finish_, reinterpret_cast<void*>(kFinished)); }

void GrpcLink::Run() {
  void* tag = nullptr;
  bool ok = false;
  while (completions_.Next(&tag, &ok)) {
    if (!HandleEvent(static_cast<Event>(reinterpret_cast<intptr_t>(tag)), ok)) {
      completions_.Shutdown();
    }
  }
}

bool GrpcLink::HandleEvent(Event event, bool ok) {
  MutexLock lock(mutex_);
  switch (event) {
    case kStarted:
      if (ok) {
        frame_.mutable_hello()->set_epoch(target_.epoch);
        frame_.mutable_hello()->set_from_stage(static_cast<uint32_t>(target_.from_stage));
        WriteLocked();
        writer_->ReadInitialMetadata(reinterpret_cast<void*>(kInitialMetadata));
      } else {
        FinishLocked();
      }
      break;
    case kInitialMetadata: {
      const auto& metadata = context_.GetServerInitialMetadata();
      const auto found = ok ? metadata.find(kLinkAcceptedKey) : metadata.end();
      accepted_ = found != metadata.end() && found->second == kLinkAcceptedValue;
      // Pending from now on: completes when the peer goes away, whether or not we write.
      FinishLocked();
      if (accepted_) {
        lock.unlock();
        events_.on_accepted();
        lock.lock();
      }
      break;
    }
    case kWritten:
      writing_ = false;
      if (frame_.has_hello()) {
        frame_.clear_hello();
        ready_ = true;
      }
      // The reason for a failed write arrives with kFinished.
      if (ok && !finished_ && !queue_.empty()) {
        Message message = std::move(queue_.front());
        queue_.pop_front();
        WriteLocked(std::move(message));
        changed_.notify_all();
      }
      break;
    case kFinished: {
      finished_ = true;
      absl::Status lost = absl::UnavailableError(absl::StrCat(
          PeerName(), ": ", ChannelName(target_.channel), " link lost",
          finish_.ok() ? ": closed by the peer" : absl::StrCat(": ", finish_.error_message())));
      if (closed_.ok()) closed_ = lost;
      queue_.clear();
      changed_.notify_all();
      lock.unlock();
      events_.on_lost(std::move(lost));
      lock.lock();
      break;
    }
  }
  return !finished_ || writing_;
}

}  // namespace stagecoach::worker
