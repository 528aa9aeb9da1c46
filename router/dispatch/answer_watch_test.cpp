#include "router/dispatch/answer_watch.h"

#include <catch2/catch_test_macros.hpp>
#include <semaphore>

#include "common/closable_queue.h"
#include "router/dispatch/testing/fake_stage.h"

namespace stagecoach::router {
namespace {

using Addresses = std::vector<std::string>;

TEST_CASE("A worker that does not answer is silent until it does") {
  std::counting_semaphore<> answers(0);
  FakeStage fast, slow({.on_describe = [&answers] {
    answers.acquire();
    return grpc::Status::OK;
  }});
  ClosableQueue<Addresses> silent;
  {
    const AnswerWatch watch({fast.address(), slow.address()}, {},
                            [&silent](const Addresses& now) { silent.Push(now).IgnoreError(); });
    CHECK(*silent.Pop() == Addresses{slow.address()});
    answers.release(1000);
    CHECK(*silent.Pop() == Addresses{});
  }
}

TEST_CASE("The end of the watch ends the silence; a worker that has gone is not silent") {
  std::counting_semaphore<> answers(0);
  FakeStage gone, slow({.on_describe = [&answers] {
    answers.acquire();
    return grpc::Status::OK;
  }});
  gone.Die();
  ClosableQueue<Addresses> silent;
  {
    const AnswerWatch watch({gone.address(), slow.address()}, {},
                            [&silent](const Addresses& now) { silent.Push(now).IgnoreError(); });
    CHECK(*silent.Pop() == Addresses{slow.address()});
  }
  CHECK(*silent.Pop() == Addresses{});
  answers.release(1000);
}

}  // namespace
}  // namespace stagecoach::router
