#include "train/text/run_data.h"

#include "tests/test.h"

using namespace flatshard;

namespace {

// What a run on a file of so many tokens in its vocabulary says to a model of so many.
std::string error_of(int64_t of_file, int64_t of_model, int64_t pad = 1, int64_t wanted = 0) {
  const std::string path = "run_data_test.tok";
  TokenWriter writer(path, of_file);
  writer.add_document(std::vector<int32_t>(9, 1));
  writer.finish();
  Config c;
  c.run.device = "cpu";
  c.model = {.family = "llama", .layers = 1, .hidden = 16, .heads = 2, .ffn = 24, .vocab = of_model};
  c.pad_to_multiple_of = pad;
  c.data.seq_len = 8;
  c.data.vocab = wanted;
  c.train.steps = 1;
  c.train.total_batch_size = 1;
  c.optimizer.lr = 1e-3;
  return test::error_of([&] { RunData data(path, set_up(c, 1), false); });
}

}  // namespace

TEST_CASE("a corpus whose vocabulary cannot be the model's is refused") {
  CHECK(error_of(256, 49152) ==
        "run_data_test.tok has a vocabulary of 256, less than three quarters of model.vocab = 49152: use the "
        "tokenizer of the model, or, if the file is right, set data.vocab = 256");
  CHECK(error_of(50257, 128256).find("less than three quarters of model.vocab") != std::string::npos);
  CHECK(error_of(257, 256) == "run_data_test.tok has a vocabulary of 257, larger than model.vocab = 256");
}

TEST_CASE("a model may have more tokens than the data, for padding and added tokens") {
  CHECK(error_of(50257, 50257, 64) == "");
  CHECK(error_of(65, 65, 128) == "");
  CHECK(error_of(151643, 151936) == "");
  CHECK(error_of(32000, 32768) == "");
  CHECK(error_of(256, 320) == "");
}

TEST_CASE("data.vocab is the vocabulary that the files must have") {
  CHECK(error_of(256, 49152, 1, 256) == "");
  CHECK(error_of(256, 260, 1, 260) == "run_data_test.tok has a vocabulary of 256, must be data.vocab = 260");
}
