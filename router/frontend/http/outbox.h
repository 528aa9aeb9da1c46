// What a connection has to write: responses as bytes, in order, and how much of them waits.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "router/frontend/http/exchange.h"
#include "router/frontend/http/http_message.h"

namespace stagecoach::router::http {

// Knows the framing of the response that is being given; no sockets. One thread at a time, but for
// Reserve.
class Outbox {
 public:
  using Done = Exchange::Done;

  // A response begins.
  void Begin(bool http_1_0, bool bodiless);
  // For its head, whatever it is.
  void AddFields(HeaderFields fields);

  void Respond(const HttpResponse& response, bool keep_alive);
  // Its head is kept until there is something to say.
  void StartStream(const HttpResponse& head, bool has_ids, bool keep_alive);
  // Any thread: counts what Write will be given. False: the client is slow, and the writer waits.
  bool Reserve(size_t n_bytes);
  // `done` may be null; runs when the bytes are written.
  void Write(std::string_view data, Done done);
  // A line between server-sent events that no client hears; begins the stream.
  void Comment(std::string_view text);
  void EndStream(std::string_view data);
  // A head of its own before the response.
  void Interim(std::string_view bytes) { queued_ += bytes; }

  bool is_stream() const { return is_stream_; }
  bool has_begun() const { return has_begun_; }      // the head is queued
  bool is_complete() const { return is_complete_; }  // nothing of the response follows

  bool empty() const { return queued_.empty(); }
  // Of what is queued; to be written, as many times as it takes, until Written says true.
  std::string_view Next();
  // The response may be said to be over once all is written and it is complete.
  bool Written(size_t n_bytes);
  // Nothing is being written: a large response's memory is given back.
  void Rest();
  // Tells all writers that wait that the client is gone.
  void Abandon();

 private:
  void Queue(std::string_view stream_data);

  // Of the response.
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
  size_t n_written_ = 0;  // of writing_
  // Of Write's data, as the writers count it.
  std::atomic<size_t> n_unwritten_{0};
  size_t n_queued_ = 0;                  // in queued_
  size_t n_writing_ = 0;                 // in writing_
  std::vector<Done> done_writing_;       // for writing_
  std::vector<Done> done_when_written_;  // for queued_
};

}  // namespace stagecoach::router::http
