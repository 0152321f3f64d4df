#include "text/images/image_input.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <variant>

#include "runtime/check.h"
#include "runtime/error_context.h"
#include "runtime/json.h"
#include "runtime/json_reader.h"
#include "runtime/named.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostBytes = int64_t{64} << 20;  // most bytes of a file
constexpr int64_t kMostSize = 1 << 20;             // largest size in a file
constexpr int64_t kMostPixels = int64_t{1} << 40;

// The object in a file; a missing file is an empty object.
JsonReader read_object(const std::string& path) {
  if (!std::filesystem::exists(path)) return {path, Json::object()};
  return {path, checked_json<Json>(read_whole_file(path, kMostBytes), path)};
}

JsonReader part_of(const JsonReader& in, const char* key) { return in.object(key, Json::object()); }

int64_t size_of(const JsonReader& in, const char* key, int64_t absent, int64_t most = kMostSize) {
  return in.has(key) ? in.whole(key, 1, most) : absent;
}

double number_of(const JsonReader& in, const char* key, double absent) {
  return in.has(key) ? in.number(key) : absent;
}

std::array<float, 3> channels_of(const JsonReader& in, const char* key, const std::array<float, 3>& absent) {
  if (!in.has(key)) return absent;
  const Json& found = in.value(key);
  in.must(found.is_array() && found.size() == 3 &&
              std::all_of(found.begin(), found.end(), [](const Json& x) { return x.is_number(); }),
          key, "three numbers");
  return found.get<std::array<float, 3>>();
}

// Checks that a processor repeats a number of the model, unless it is absent.
void check_same(const JsonReader& processor, const char* key, int64_t of_model) {
  processor.must(size_of(processor, key, of_model) == of_model, key, str("that of the model, ", of_model));
}

void read_model(const JsonReader& config, ImageInput& input) {
  ImageRules& rules = input.rules;
  const JsonReader vision = part_of(config, "vision_config");
  if (rules.by_squares()) {
    rules.patch_size = size_of(vision, "patch_size", 14);
    rules.scale = size_of(vision, "spatial_merge_size", 2);
    rules.repeats = size_of(vision, "temporal_patch_size", 2);
    input.token = static_cast<int32_t>(size_of(config, "image_token_id", 151655));
    return;
  }
  rules.patch_size = size_of(vision, "patch_size", 32);
  rules.position_side = size_of(vision, "image_size", 224) / rules.patch_size;
  check(rules.position_side >= 1, vision.where("image_size"), " is smaller than a patch of ",
        rules.patch_size);
  const bool latents = rules.family == ImageFamily::idefics2;
  input.token = static_cast<int32_t>(size_of(config, "image_token_id", latents ? 32001 : 128257));
  if (latents)
    rules.latents = size_of(part_of(config, "perceiver_config"), "resampler_n_latents", 64);
  else
    rules.scale = size_of(config, "scale_factor", 2);
}

ResizeFilter filter_of(const JsonReader& processor, ImageFamily family) {
  constexpr char kKey[] = "resample";
  if (!processor.has(kKey))
    return family == ImageFamily::idefics2   ? ResizeFilter::bilinear
           : family == ImageFamily::idefics3 ? ResizeFilter::lanczos
                                             : ResizeFilter::bicubic;
  constexpr std::array kPillow{ResizeFilter::lanczos, ResizeFilter::bilinear, ResizeFilter::bicubic};
  const Json& number = processor.value(kKey);  // Pillow's
  processor.must(number == 1 || number == 2 || number == 3, kKey, "1, 2 or 3: lanczos, bilinear or bicubic");
  return kPillow[number.get<size_t>() - 1];
}

// Older files have min_pixels and max_pixels instead of "size".
void read_pixels(const JsonReader& processor, ImageRules& rules) {
  const JsonReader size = part_of(processor, "size");
  const auto pixels = [&](const char* key, const char* old_key, int64_t absent) {
    return size_of(processor, old_key, size_of(size, key, absent, kMostPixels), kMostPixels);
  };
  rules.fewest_pixels = pixels("shortest_edge", "min_pixels", rules.fewest_pixels);
  rules.most_pixels = pixels("longest_edge", "max_pixels", rules.most_pixels);
  check_same(processor, "patch_size", rules.patch_size);
  check_same(processor, "merge_size", rules.scale);
  check_same(processor, "temporal_patch_size", rules.repeats);
}

void read_processor(const JsonReader& processor, ImageRules& rules) {
  const bool idefics2 = rules.family == ImageFamily::idefics2;
  for (const char* key : {"do_resize", "do_rescale", "do_normalize", "do_convert_rgb"})
    processor.must(processor.flag(key, true), key, "true");
  rules.filter = filter_of(processor, rules.family);
  if (rules.by_squares()) {
    rules.mean = kClipMean;
    rules.std = kClipStd;
  }
  rules.rescale = number_of(processor, "rescale_factor", rules.rescale);
  rules.mean = channels_of(processor, "image_mean", rules.mean);
  rules.std = channels_of(processor, "image_std", rules.std);
  processor.must(std::all_of(rules.std.begin(), rules.std.end(), [](float x) { return x > 0; }), "image_std",
                 "positive");
  if (rules.by_squares()) return read_pixels(processor, rules);
  rules.splits = processor.flag("do_image_splitting", !idefics2);
  const JsonReader size = part_of(processor, "size");
  if (!size.members().empty()) size.require("longest_edge");
  rules.longest_edge = size_of(size, "longest_edge", idefics2 ? 980 : 4 * 364);
  rules.shortest_edge = size_of(size, "shortest_edge", 378);
  rules.frame_edge = size_of(part_of(processor, "max_image_size"), "longest_edge", 364);
}

void check_token_count(const JsonReader& processor, const ImageRules& rules) {
  if (rules.by_squares()) return;
  const int64_t side = rules.frame_edge / rules.patch_size / std::max<int64_t>(rules.scale, 1);
  check_same(processor, "image_seq_len", rules.family == ImageFamily::idefics2 ? rules.latents : side * side);
}

// The members of an ImageInput as JSON that only some families have, in their order there.
struct Member {
  const char* key;
  std::variant<int64_t ImageRules::*, bool ImageRules::*> member;
  bool of_idefics2, of_idefics3, of_qwen2_vl;
  int64_t most = kMostSize;

  bool is_of(ImageFamily family) const {
    return family == ImageFamily::idefics2   ? of_idefics2
           : family == ImageFamily::idefics3 ? of_idefics3
                                             : of_qwen2_vl;
  }
};

constexpr Member kMembers[] = {{"position_side", &ImageRules::position_side, true, true, false},
                               {"longest_edge", &ImageRules::longest_edge, true, true, false},
                               {"splits", &ImageRules::splits, true, true, false},
                               {"shortest_edge", &ImageRules::shortest_edge, true, false, false},
                               {"latents", &ImageRules::latents, true, false, false},
                               {"tile_edge", &ImageRules::frame_edge, false, true, false},
                               {"scale", &ImageRules::scale, false, true, true},
                               {"repeats", &ImageRules::repeats, false, false, true},
                               {"fewest_pixels", &ImageRules::fewest_pixels, false, false, true, kMostPixels},
                               {"most_pixels", &ImageRules::most_pixels, false, false, true, kMostPixels}};

}  // namespace

std::optional<ImageFamily> image_family_of(const std::string& type) {
  if (type == "idefics2") return ImageFamily::idefics2;
  if (type == "idefics3" || type == "smolvlm") return ImageFamily::idefics3;
  if (type == "qwen2_vl" || type == "qwen2_5_vl") return ImageFamily::qwen2_vl;
  return {};
}

std::optional<ImageInput> read_image_input(const std::string& folder, int64_t longest_edge) {
  const JsonReader config = read_object(folder + "/config.json");
  const std::optional<ImageFamily> family = image_family_of(config.text("model_type", ""));
  if (!family) return {};
  ImageInput input;
  input.rules.family = *family;
  read_model(config, input);
  const JsonReader both = read_object(folder + "/processor_config.json");
  read_processor(both.has("image_processor") ? both.object("image_processor")
                                             : read_object(folder + "/preprocessor_config.json"),
                 input.rules);
  check_token_count(both, input.rules);
  if (longest_edge > 0 && input.rules.by_squares()) {
    const int64_t fewest = input.rules.fewest_pixels;
    input.rules.most_pixels = longest_edge * longest_edge;
    check(input.rules.most_pixels >= fewest, folder, ": data.image_longest_edge = ", longest_edge,
          " allows images of ", input.rules.most_pixels, " pixels, but the model reads none of fewer than ",
          fewest, ": set it to at least ",
          static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(fewest)))));
  } else if (longest_edge > 0) {
    input.rules.longest_edge = longest_edge;
  }
  with_place(folder, [&] { check_rules(input.rules); });
  return input;
}

std::string to_json(const ImageInput& input) {
  const ImageRules& r = input.rules;
  nlohmann::ordered_json json{{"family", name_of(r.family)},
                              {"token", input.token},
                              {"patch_size", r.patch_size},
                              {"filter", name_of(r.filter)},
                              {"rescale", r.rescale},
                              {"mean", r.mean},
                              {"std", r.std}};
  for (const Member& m : kMembers)
    if (m.is_of(r.family)) std::visit([&](auto member) { json[m.key] = r.*member; }, m.member);
  return json_text(json);
}

ImageInput parse_image_input(const std::string& text) {
  const JsonReader in("the rules of images", parse_json_or_discard<Json>(text));
  ImageInput input;
  ImageRules& r = input.rules;
  const auto family = named<ImageFamily>(in.text("family"));
  const auto filter = named<ResizeFilter>(in.text("filter"));
  check(family && filter, in.where(family ? "filter" : "family"), " is unknown");
  r.family = *family;
  r.filter = *filter;
  input.token = static_cast<int32_t>(in.whole("token", 0, INT32_MAX));
  r.patch_size = size_of(in, "patch_size", r.patch_size);
  for (const Member& m : kMembers) {
    if (const auto* size = std::get_if<int64_t ImageRules::*>(&m.member))
      r.** size = size_of(in, m.key, r.**size, m.most);
    else
      r.splits = in.flag(m.key, r.splits);
  }
  r.rescale = number_of(in, "rescale", r.rescale);
  r.mean = channels_of(in, "mean", r.mean);
  r.std = channels_of(in, "std", r.std);
  check_rules(r);
  return input;
}

}  // namespace flatshard
