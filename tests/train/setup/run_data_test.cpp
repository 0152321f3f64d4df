#include "train/setup/run_data.h"

#include "tests/test.h"
#include "tests/text/data/image_tokens.h"

using namespace flatshard;

namespace {

constexpr const char* kPath = "run_data_test.tok";

RunSetup setup_of(int64_t vocab, int64_t pad = 1, int64_t wanted = 0, Packing packing = Packing::wrapped) {
  Config c;
  c.run.device = DeviceChoice::cpu;
  c.model = {.family = "llama", .layers = 1, .hidden = 16, .heads = 2, .ffn = 24, .vocab = vocab};
  c.pad_to_multiple_of = pad;
  c.data.seq_len = 8;
  c.data.vocab = wanted;
  c.data.packing = packing;
  c.train.steps = 1;
  c.train.total_batch_size = 1;
  c.optimizer.lr = 1e-3;
  return set_up(c, 1);
}

// The error of a run whose file and model have these vocabulary sizes.
std::string error_of(int64_t of_file, int64_t of_model, int64_t pad = 1, int64_t wanted = 0) {
  TokenWriter writer(kPath, of_file);
  writer.add_document(std::vector<int32_t>(9, 1));
  writer.finish();
  return test::error_of([&] { RunData data(kPath, setup_of(of_model, pad, wanted), false); });
}

// A model of idefics2 that reads the images of write_image_tokens().
VisionConfig small_vision() {
  const ImageInput input = test::small_image_input();
  VisionConfig vision;
  vision.patch_size = input.rules.patch_size;
  vision.image_size = input.rules.position_side * input.rules.patch_size;
  vision.image_token = input.token;
  vision.perceiver.latents = input.rules.latents;
  return vision;
}

}  // namespace

TEST_CASE("a corpus whose vocabulary cannot be the model's is refused") {
  CHECK(error_of(256, 49152) ==
        "run_data_test.tok has a vocabulary of 256, less than three quarters of model.vocab = 49152: set "
        "model.vocab = 256, or, if both are right, data.vocab = 256");
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

TEST_CASE("packing counts the documents that are too long, empty or not trained") {
  {
    TokenWriter writer(kPath, 10);
    writer.add_document(std::vector<int32_t>(11, 1));
    writer.add_document(std::vector<int32_t>(8, 2));
    writer.add_document({});
    writer.add_document(std::vector<int32_t>(3, 3), std::vector<uint8_t>{1, 0, 0});
    writer.finish();
  }
  const auto said = [](Packing packing) {
    return RunData(kPath, setup_of(10, 1, 0, packing), false).describe();
  };
  CHECK(
      said(Packing::best_fit) ==
      "run_data_test.tok: 22 tokens in 4 documents, 2 sequences filled to 100.0%, 1 empty document dropped, "
      "1 document without trained tokens dropped, 1 document truncated, 3 tokens lost by that; an epoch is "
      "2 "
      "steps");
  CHECK(said(Packing::best_fit_split).find("truncated") == std::string::npos);
  CHECK(said(Packing::none).find(", 1 document truncated, 3 tokens lost by that") != std::string::npos);
}

TEST_CASE("a file with images says how full its sequences are, and what was dropped for images") {
  const std::string picture = test::picture("rgb.jpeg");  // 8 patches, 4 tokens
  test::write_image_tokens(kPath, {{{picture}, 4}, {{picture, picture}, 2}, {{}, 4}});
  RunSetup setup = setup_of(100, 1, 0, Packing::none);
  setup.model.family = "idefics2";
  setup.model.vision = small_vision();
  setup.max_patches = 10;
  CHECK(RunData(kPath, setup, false).describe() ==
        "run_data_test.tok: 22 tokens in 3 documents, 2 sequences filled to 75.0% with tokens, to 40.0% with "
        "patches of images, 1 document dropped whose images do not fit data.seq_len and data.max_patches; an "
        "epoch is 2 steps");
}

TEST_CASE("images are refused by a model of text, and if the model reads them otherwise") {
  test::write_image_tokens(kPath, {{{test::picture("rgb.jpeg")}, 4}});
  RunSetup setup = setup_of(100, 1, 0, Packing::none);
  const auto error = [&] { return test::error_of([&] { RunData(kPath, setup, false); }); };
  CHECK(error() ==
        "run_data_test.tok: has images, and the model, a llama, reads only text: set model.init_from to a "
        "model that reads images");
  setup.model.vision = small_vision();
  setup.model.family = "qwen2_vl";
  CHECK(test::missing_from(error(), {kPath, "images of idefics2", "a qwen2_vl", "make it again"}) == "");
  setup.model.family = "idefics2";
  CHECK(error() == "");
  setup.model.vision->image_token = 91;
  CHECK(error() ==
        "run_data_test.tok: was made for images of image_token_id 90, but the model has 91: make it again "
        "with prepare, with the tokenizer of the model");
  setup.model.vision = small_vision();
  setup.config.data.tokenizer = str(kSourceDir, "/tests/golden/image_folders/idefics2");
  CHECK(test::missing_from(error(),
                           {kPath, "was made for images as ", "\"patch_size\":4", "image_folders/idefics2",
                            "\"patch_size\":8", "make it again with prepare"}) == "");
}

TEST_CASE("data.max_samples uses the first documents, as if the file ended after them") {
  const auto write = [](const std::string& path, int documents) {
    TokenWriter writer(path, 10);
    for (int i = 0; i < documents; ++i)
      writer.add_document(std::vector<int32_t>(static_cast<size_t>(5 + i % 7), i % 10),
                          std::vector<uint8_t>(static_cast<size_t>(5 + i % 7), i % 3 != 0));
    writer.finish();
  };
  write(kPath, 2000);
  for (const int most : {2, 511, 512, 513, 1024, 1999}) {
    const std::string cut_path = "run_data_cut.tok";
    write(cut_path, most);
    for (const Packing packing : {Packing::wrapped, Packing::documents, Packing::best_fit, Packing::none}) {
      CAPTURE(most);
      CAPTURE(packing);
      RunSetup setup = setup_of(10, 1, 0, packing);
      const RunData whole(cut_path, setup, false);
      setup.config.data.max_samples = most;
      const RunData first(kPath, setup, false);
      CHECK(first.files.front().document_count() == most);
      CHECK(first.token_count() == whole.token_count());
      CHECK(first.files.front().left_out() == 2000 - most);
      CHECK(first.data.sequence_count() == whole.data.sequence_count());
      CHECK(first.describe().find("data.max_samples leaves out ") != std::string::npos);
      for (int64_t step = 0; step < std::min<int64_t>(20, first.data.sequence_count()); ++step)
        CHECK(first.data.target_count(step) == whole.data.target_count(step));
      int64_t documents = 0;
      first.files.front().each_document([&](int64_t, int64_t) { ++documents; });
      CHECK(documents == most);
    }
  }
  RunSetup setup = setup_of(10);
  for (const int64_t all : {int64_t{0}, int64_t{2000}, int64_t{1} << 50}) {
    setup.config.data.max_samples = all;
    const RunData data(kPath, setup, false);
    CHECK(data.files.front().document_count() == 2000);
    CHECK(data.describe().find("max_samples") == std::string::npos);
  }
  setup.config.data.max_samples = 1;
  CHECK(test::error_of([&] { RunData(kPath, setup, false); }) ==
        "run_data_test.tok: has 5 tokens in its first data.max_samples, must have at least data.seq_len + 1 "
        "= 9");
}
