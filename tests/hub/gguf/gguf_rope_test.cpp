#include "hub/gguf/gguf_rope.h"

#include <cmath>
#include <cstring>

#include "tests/small_model.h"
#include "tests/test.h"

using namespace flatshard;
using Kind = RopeScaling::Kind;

namespace {

constexpr char kPath[] = "gguf_rope_test.gguf";

ModelConfig rotating(const std::string& family, int64_t head_dim, double theta, RopeScalingConfig scaling) {
  ModelConfig c = test::small_model(family);
  c.head_dim = head_dim;
  c.rope_theta = theta;
  c.max_positions = 1024;
  c.rope_scaling = std::move(scaling);
  return resolved(c);
}

// A file with nothing but keys and tensors of the rotation.
void write(const ModelConfig& c, const std::vector<GgufRopeTensor>& tensors,
           std::vector<std::string>* notes = nullptr) {
  GgufWriter out;
  const std::vector<std::string> said = put_gguf_rope(out, "x.", c);
  if (notes) *notes = said;
  for (const GgufRopeTensor& tensor : tensors)
    out.add_tensor(tensor.name, GgmlType::f32, {std::ssize(tensor.divisors)});
  out.begin(kPath);
  for (const GgufRopeTensor& tensor : tensors) out.write(std::as_bytes(std::span(tensor.divisors)));
  out.finish();
}

RopeScalingConfig read(ModelConfig c) {
  c.rope_scaling = {};
  const GgufFile file(kPath);
  return read_gguf_scaling(file, GgufKeys(file, "x."), c);
}

RopeScalingConfig llama3(double factor, int64_t original, double low = 1, double high = 4) {
  return {.kind = Kind::llama3,
          .factor = factor,
          .low_freq_factor = low,
          .high_freq_factor = high,
          .original_max_positions = original};
}

}  // namespace

TEST_CASE("the scalings of Llama 3 are read from the divisors of a GGUF file") {
  for (const RopeScalingConfig& scaling : {llama3(8, 8192), llama3(32, 8192), llama3(4, 2048),
                                           llama3(16, 131072), llama3(2.5, 1000), llama3(8, 8192, 1, 8)})
    for (const int64_t head_dim : {64, 128}) {
      CAPTURE(scaling.original_max_positions);
      CAPTURE(scaling.factor);
      CAPTURE(head_dim);
      const ModelConfig c = rotating("llama", head_dim, 500000, scaling);
      write(c, gguf_rope_tensors(c));
      CHECK(read(c) == scaling);
    }
}

TEST_CASE("small heads, whose divisors fit many scalings of Llama 3, have the same frequencies") {
  constexpr double kEqual = 1e-5;  // of divisors of 32 bits
  for (const RopeScalingConfig& scaling :
       {llama3(8, 16), llama3(8, 8192), llama3(8, 64, 2, 8), llama3(8, 4096, 1, 1.5), llama3(8, 100),
        llama3(32, 1 << 20), llama3(3, 7)})
    for (const int64_t head_dim : {2, 4, 8, 16, 64})
      for (const double theta : {100.0, 1e4, 5e5}) {
        CAPTURE(scaling.original_max_positions);
        CAPTURE(head_dim);
        CAPTURE(theta);
        const ModelConfig was = rotating("llama", head_dim, theta, scaling);
        write(was, gguf_rope_tensors(was));
        ModelConfig is = was;
        is.rope_scaling = read(was);
        const std::vector<double> expected = rope_frequencies(head_dim, theta, was.scaling()),
                                  found = rope_frequencies(head_dim, theta, is.scaling());
        for (size_t i = 0; i < found.size(); ++i)
          CHECK(std::abs(found[i] - expected[i]) <= kEqual * expected[i]);
      }
}

TEST_CASE("longrope is read as it was written, and its choice of factors is said") {
  for (const double attention : {0.0, 1.25})
    for (const double factor : {4.0, 3.0}) {
      const ModelConfig c = rotating("phi3", 8, 10000,
                                     {.kind = Kind::longrope,
                                      .factor = factor,
                                      .original_max_positions = 256,
                                      .attention_factor = attention,
                                      .short_factor = {1, 1.5, 2, 3},
                                      .long_factor = {1, 2.25, 40, 1.118320672}});
      std::vector<std::string> notes;
      write(c, gguf_rope_tensors(c), &notes);
      const RopeScalingConfig found = read(c);
      CHECK(found.kind == Kind::longrope);
      CHECK(found.original_max_positions == 256);
      CHECK(found.short_factor == c.rope_scaling.short_factor);
      for (size_t i = 0; i < 4; ++i)
        CHECK(static_cast<float>(found.long_factor[i]) == static_cast<float>(c.rope_scaling.long_factor[i]));
      ModelConfig with = c;
      with.rope_scaling = found;
      CHECK(std::abs(with.scaling().attention_factor - c.scaling().attention_factor) < 1e-6);
      if (factor == 4) CHECK(found.attention_factor == attention);  // the factor of 1024 positions
      REQUIRE(notes.size() == 1);
      CHECK(test::missing_from(notes[0], {"long factors", "context", "256"}) == "");
    }
}

TEST_CASE("linear and yarn are keys") {
  for (const RopeScalingConfig& scaling : {RopeScalingConfig{},
                                           {.kind = Kind::linear, .factor = 2.5},
                                           {.kind = Kind::yarn,
                                           .factor = 4,
                                           .original_max_positions = 256,
                                           .beta_fast = 16,
                                           .beta_slow = 0.5}}) {
    const ModelConfig c = rotating("llama", 8, 10000, scaling);
    CHECK(gguf_rope_tensors(c).empty());
    write(c, {});
    CHECK(read(c) == scaling);
  }
}

TEST_CASE("divisors that do not fit the model are errors that name tensor and size") {
  const ModelConfig llama = rotating("llama", 8, 10000, {}), phi3 = rotating("phi3", 8, 10000, {});
  const auto error = [](const ModelConfig& c, const std::vector<GgufRopeTensor>& tensors) {
    write(c, tensors);
    return test::error_of([&] { read(c); });
  };
  CHECK(test::missing_from(error(llama, {{"rope_freqs.weight", {1, 1, 8}}}),
                           {"rope_freqs.weight", "[3]", "[4]"}) == "");
  CHECK(test::missing_from(error(llama, {{"rope_freqs.weight", {1, 2, 3, 8}}}),
                           {"rope_freqs.weight", "no scaling of Llama 3"}) == "");
  CHECK(test::missing_from(error(llama, {{"rope_freqs.weight", {1, 1, 1, -8}}}), {"-8", "positive"}) == "");
  CHECK(test::missing_from(error(phi3, {{"rope_factors_short.weight", {1, 1, 1, 1}}}),
                           {"rope_factors_long.weight", "missing"}) == "");
  CHECK(test::missing_from(error(phi3, {{"rope_factors_short.weight", {1, 1, 1, 1}},
                                        {"rope_factors_long.weight", {1, 1, 1, 1}}}),
                           {"x.rope.scaling.original_context_length", "missing"}) == "");
  ModelConfig linear = llama;
  linear.rope_scaling = {.kind = Kind::linear, .factor = 2};
  CHECK(test::missing_from(error(linear, {{"rope_freqs.weight", {1, 1, 1, 8}}}), {"linear", "rope_freqs"}) ==
        "");
}
