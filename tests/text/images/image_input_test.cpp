#include "text/images/image_input.h"

#include <filesystem>
#include <fstream>

#include "source_dir.h"
#include "tests/test.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

std::string golden_folder(const std::string& name) {
  return str(kSourceDir, "/tests/golden/image_folders/", name);
}

// A folder with these files.
std::string folder_with(const std::string& config, const std::string& processor = "",
                        const std::string& images = "") {
  const std::string folder = "a model";
  fs::remove_all(folder);
  fs::create_directory(folder);
  const auto write = [&](const char* name, const std::string& text) {
    if (!text.empty()) std::ofstream(folder + "/" + name) << text;
  };
  write("config.json", config);
  write("processor_config.json", processor);
  write("preprocessor_config.json", images);
  return folder;
}

ImageInput read(const std::string& config, const std::string& processor = "",
                const std::string& images = "") {
  return read_image_input(folder_with(config, processor, images)).value();
}

std::string error(const std::string& config, const std::string& processor = "",
                  const std::string& images = "") {
  return test::error_of([&] { read(config, processor, images); });
}

}  // namespace

TEST_CASE("what the files of a model leave out is as in transformers 5") {
  const ImageInput two = read(R"({"model_type": "idefics2"})");
  CHECK(two == ImageInput{.rules = {.family = ImageFamily::idefics2,
                                    .patch_size = 32,
                                    .position_side = 7,
                                    .longest_edge = 980,
                                    .shortest_edge = 378,
                                    .splits = false,
                                    .latents = 64},
                          .token = 32001});
  const ImageInput three =
      read(R"({"model_type": "smolvlm", "vision_config": {"patch_size": 14, "image_size": 364}})");
  CHECK(three == ImageInput{.rules = {.family = ImageFamily::idefics3,
                                      .patch_size = 14,
                                      .position_side = 26,
                                      .longest_edge = 1456,
                                      .frame_edge = 364,
                                      .splits = true,
                                      .filter = ResizeFilter::lanczos,
                                      .scale = 2},
                            .token = 128257});
  const ImageInput qwen = read(R"({"model_type": "qwen2_5_vl"})");
  CHECK(qwen == ImageInput{.rules = {.family = ImageFamily::qwen2_vl,
                                     .filter = ResizeFilter::bicubic,
                                     .mean = {0.48145466f, 0.4578275f, 0.40821073f},
                                     .std = {0.26862954f, 0.26130258f, 0.27577711f},
                                     .scale = 2,
                                     .fewest_pixels = 3136,
                                     .most_pixels = 1003520,
                                     .repeats = 2},
                           .token = 151655});
}

TEST_CASE("rules are read from the files of published folders and of transformers 5") {
  const std::string config = R"({"model_type": "idefics2", "image_token_id": 9, "perceiver_config": null,
    "vision_config": {"patch_size": 14, "image_size": 980}})";
  const std::string images = R"({"size": {"longest_edge": 500, "shortest_edge": 40}, "resample": 3,
    "do_image_splitting": true, "rescale_factor": 0.5, "image_mean": [1, 2, 3], "image_std": [4, 5, 6]})";
  const ImageInput published = read(config, R"({"image_seq_len": 64})", images);
  CHECK(published == read(config, R"({"image_seq_len": 64, "image_processor": )" + images + "}"));
  CHECK(published.token == 9);
  CHECK(published.rules.longest_edge == 500);
  CHECK(published.rules.filter == ResizeFilter::bicubic);
  CHECK(published.rules.mean == std::array{1.0f, 2.0f, 3.0f});
  CHECK(published.rules.std == std::array{4.0f, 5.0f, 6.0f});
  CHECK(published.rules.splits);
  CHECK(read_image_input(folder_with(config, "", images), 700)->rules.longest_edge == 700);
}

TEST_CASE("the pixels that an image of Qwen may have are read in both forms, and bounded") {
  const std::string config = R"({"model_type": "qwen2_vl", "image_token_id": 9})";
  const std::string published = R"({"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14,
    "merge_size": 2, "temporal_patch_size": 2})";
  const ImageInput input = read(config, "", published);
  CHECK(input == read(config, R"({"image_processor": {"size":
    {"shortest_edge": 3136, "longest_edge": 12845056}}})"));
  CHECK(input.token == 9);
  CHECK(input.rules.fewest_pixels == 3136);
  CHECK(input.rules.most_pixels == 12845056);
  CHECK(read_image_input(folder_with(config, "", published), 768)->rules.most_pixels == 768 * 768);
  CHECK(test::missing_from(test::error_of([&] { read_image_input(folder_with(config, "", published), 55); }),
                           {"a model: data.image_longest_edge = 55", "3025 pixels", "3136", "at least 56"}) ==
        "");
  CHECK(error(config, "", R"({"merge_size": 3})") ==
        "a model/preprocessor_config.json: merge_size is 3, must be that of the model, 2");
  CHECK(error(config, "", R"({"max_pixels": 3000})").find("3136 to 3000 pixels") != std::string::npos);
}

TEST_CASE("a folder without images, or without a config.json, has no rules") {
  CHECK_FALSE(read_image_input(folder_with(R"({"model_type": "llama"})")).has_value());
  CHECK_FALSE(read_image_input(folder_with("", "{}", "{}")).has_value());
  CHECK_FALSE(read_image_input("no such folder").has_value());
}

TEST_CASE("rules come back from JSON") {
  for (const char* const name : {"idefics2", "idefics2_whole", "idefics3", "smolvlm", "qwen2_5_vl"}) {
    CAPTURE(name);
    const ImageInput input = read_image_input(golden_folder(name)).value();
    CHECK(parse_image_input(to_json(input)) == input);
    const ImageInput other = read_image_input(golden_folder(name), 100).value();
    CHECK(parse_image_input(to_json(other)) == other);
    CHECK(to_json(other) != to_json(input));
  }
}

TEST_CASE("rules that cannot be followed are refused with file and key") {
  const std::string config =
      R"({"model_type": "idefics3", "vision_config": {"patch_size": 14, "image_size": 364}})";
  CHECK(error(R"({"model_type": "idefics2", "vision_config": 3})") ==
        "a model/config.json: vision_config is 3, must be an object");
  CHECK(error(R"({"model_type": "idefics2", "vision_config": {"patch_size": 0}})") ==
        "a model/config.json: vision_config.patch_size is 0, must be a whole number from 1 to 1048576");
  CHECK(error(R"({"model_type": "idefics2", "vision_config": {"image_size": 16}})") ==
        "a model/config.json: vision_config.image_size is smaller than a patch of 32");
  CHECK(error(config, "", R"({"do_resize": false})") ==
        "a model/preprocessor_config.json: do_resize is false, must be true");
  CHECK(error(config, "", R"({"resample": 5})")
            .starts_with("a model/preprocessor_config.json: resample is 5, must be 1, 2 or 3"));
  CHECK(error(config, "", R"({"size": {"height": 3, "width": 3}})") ==
        "a model/preprocessor_config.json: size.longest_edge is missing");
  CHECK(error(config, "", R"({"image_std": [1, 0, 1]})") ==
        "a model/preprocessor_config.json: image_std is [1,0,1], must be positive");
  CHECK(error(config, R"({"image_seq_len": 64})") ==
        "a model/processor_config.json: image_seq_len is 64, must be that of the model, 169");
  CHECK(error(config, "", R"({"max_image_size": {"longest_edge": 378}})").find("scale_factor") !=
        std::string::npos);
  CHECK(error(config, "", R"({"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 28}})")
            .find("64 frames of 28") != std::string::npos);
  CHECK(error("[]") == "a model/config.json: must be a JSON object");
  for (const char* const json : {"", "[]", "{}", R"({"family": "idefics2", "filter": "x"})",
                                 R"({"family": "idefics2", "filter": "lanczos"})",
                                 R"({"family": "idefics2", "filter": "lanczos", "token": -1})",
                                 R"({"family": "idefics3", "filter": "lanczos", "token": 1, "scale": 0})"})
    CHECK(test::error_of([&] { parse_image_input(json); }).starts_with("the rules of images"));
}
