// The output queue of a connection: responses as bytes, in order, and the amount that waits.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "router/frontend/http/exchange.h"
#include "router/frontend/http/http_message.h"

namespace stagecoach::router::http {

// Knows the framing of the current response; knows no sockets. One thread at a time, except for
// Reserve.
class Outbox {
 public:
  using Done = Exchange::Done;

  // Begins a response.
  void Begin(bool http_1_0, bool bodiless);
  // Adds fields to the response's head, for any kind of response.
  void AddFields(HeaderFields fields);

  void Respond(const HttpResponse& response, bool keep_alive);
  // Holds the head back until there is data to send.
  void StartStream(const HttpResponse& head, bool has_ids, bool keep_alive);
  // Any thread: announces bytes for Write. False: the client is slow, and the writer must wait.
  bool Reserve(size_t n_bytes);
  // `done` may be null; it runs when the bytes are written.
  void Write(std::string_view data, Done done);
  // Sends an SSE comment, which clients ignore; begins the stream if necessary.
  void Comment(std::string_view text);
  void EndStream(std::string_view data);
  // Sends an interim response head before the response.
  void Interim(std::string_view bytes) { queued_ += bytes; }

  bool is_stream() const { return is_stream_; }
  bool has_begun() const { return has_begun_; }      // the head is queued
  bool is_complete() const { return is_complete_; }  // the whole response is queued

  bool empty() const { return queued_.empty(); }
  // The next bytes to write. Write them and report to Written, repeatedly, until Written returns
  // true.
  std::string_view Next();
  // True: all bytes of the last Next are written. If empty() and is_complete(), the response is
  // finished.
  bool Written(size_t n_bytes);
  // Call it while nothing is being written: frees the memory of a large response.
  void Rest();
  // Tells all waiting writers that the client is gone.
  void Abandon();

 private:
  void Queue(std::string_view stream_data);

  // State of the current response.
  bool http_1_0_ = false;
  bool bodiless_ = false;
  HeaderFields fields_;
  bool is_stream_ = false;
  bool has_ids_ = false;
  std::string stream_head_;
  bool has_begun_ = false;
  bool is_complete_ = false;

  std::string writing_;
  std::string queued_;
  size_t n_written_ = 0;  // written bytes of writing_
  // Bytes of Write's data, as Reserve counted them.
  std::atomic<size_t> n_unwritten_{0};
  size_t n_queued_ = 0;                  // part of Write's data in queued_
  size_t n_writing_ = 0;                 // part of Write's data in writing_
  std::vector<Done> done_writing_;       // callbacks for writing_
  std::vector<Done> done_when_written_;  // callbacks for queued_
};

}  // namespace stagecoach::router::http
