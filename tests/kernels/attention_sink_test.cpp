#include "kernels/attention_sink.h"

#include <cmath>
#include <limits>
#include <vector>

#include "runtime/stream.h"
#include "tests/test.h"

using namespace flatshard;

TEST_CASE("a sink takes its share of the softmax, and all of it where there are no keys") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  std::vector<float> o{1, 2, 3, 4, 5, 6}, lse{0.5f, kNone, 40}, sinks{1.25f};
  attention_sink_forward(stream, {.o = tensor_of(o.data(), {3, 1, 2}),
                                  .lse = tensor_of(lse.data(), {1, 3}),
                                  .sinks = tensor_of(sinks.data(), {1})});
  stream.sync();
  const double share = std::exp(0.5) / (std::exp(0.5) + std::exp(1.25));
  CHECK(o[0] == doctest::Approx(share));
  CHECK(o[1] == doctest::Approx(2 * share));
  CHECK(lse[0] == doctest::Approx(std::log(std::exp(0.5) + std::exp(1.25))));
  CHECK(o[2] == 0);
  CHECK(lse[1] == 1.25f);
  CHECK(o[4] == 5);
  CHECK(lse[2] == 40);
}

TEST_CASE("the gradient of a sink adds up all queries of its head") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  std::vector<float> o{1, 2, 3, 4}, d{0.5f, 1, -1, 2}, lse{2, 1}, sinks{1.5f}, dsinks{10};
  const AttentionSinkBackward a{.dsinks = tensor_of(dsinks.data(), {1}),
                                .grad_o = tensor_of(d.data(), {2, 1, 2}),
                                .o = tensor_of(o.data(), {2, 1, 2}),
                                .lse = tensor_of(lse.data(), {1, 2}),
                                .sinks = tensor_of(sinks.data(), {1}),
                                .accumulate = true};
  attention_sink_backward(stream, a);
  stream.sync();
  CHECK(dsinks[0] == doctest::Approx(10 - std::exp(-0.5) * 2.5 - std::exp(0.5) * 5));
  AttentionSinkBackward wrong = a;
  wrong.dsinks.shape = {2};
  CHECK(test::error_of([&] {
          attention_sink_backward(stream, wrong);
        }).starts_with("attention_sink_backward: dsinks"));
}
