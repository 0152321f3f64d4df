#include "text/images/image_input.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/named.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostBytes = int64_t{64} << 20;  // most bytes of a file
constexpr int64_t kMostSize = 1 << 20;             // largest size in a file
constexpr int64_t kMostPixels = int64_t{1} << 40;

// An object in a file, for errors that name both. A null member is absent, as in transformers.
struct Part {
  const Json& json;
  std::string name;  // "config.json: vision_config."

  const Json* find(const char* key) const {
    const auto found = json.find(key);
    return found != json.end() && !found->is_null() ? &*found : nullptr;
  }
  int64_t size(const char* key, int64_t absent, int64_t most = kMostSize) const {
    const Json* const found = find(key);
    if (!found) return absent;
    check(found->is_number_integer(), name, key, " must be a whole number");
    const int64_t value = found->is_number_unsigned() && found->get<uint64_t>() > static_cast<uint64_t>(most)
                              ? most + 1
                              : found->get<int64_t>();
    check(value >= 1 && value <= most, name, key, " = ", found->dump(), ", must be from 1 to ", most);
    return value;
  }
  double number(const char* key, double absent) const {
    const Json* const found = find(key);
    check(!found || found->is_number(), name, key, " must be a number");
    return found ? found->get<double>() : absent;
  }
  bool flag(const char* key, bool absent) const {
    const Json* const found = find(key);
    check(!found || found->is_boolean(), name, key, " must be true or false");
    return found ? found->get<bool>() : absent;
  }
  std::string text(const char* key) const {
    const Json* const found = find(key);
    return found && found->is_string() ? found->get<std::string>() : "";
  }
  // Returns the object; an absent one is empty.
  Part object(const char* key) const {
    static const Json kNone = Json::object();
    const Json* const found = find(key);
    check(!found || found->is_object(), name, key, " must be an object");
    return {found ? *found : kNone, name + key + "."};
  }
  std::array<float, 3> channels(const char* key, const std::array<float, 3>& absent) const {
    const Json* const found = find(key);
    if (!found) return absent;
    const bool fits = found->is_array() && found->size() == 3 &&
                      std::all_of(found->begin(), found->end(), [](const Json& x) { return x.is_number(); });
    check(fits, name, key, " must be three numbers");
    return {(*found)[0].get<float>(), (*found)[1].get<float>(), (*found)[2].get<float>()};
  }
};

Json read_object(const std::string& path) {
  if (!std::filesystem::exists(path)) return Json::object();
  const std::string text = read_whole_file(path, kMostBytes);
  Json parsed = checked_json<Json>(text, path);
  check(parsed.is_object(), path, ": must be an object");
  return parsed;
}

void read_model(const Part& config, ImageInput& input) {
  ImageRules& rules = input.rules;
  const Part vision = config.object("vision_config");
  if (rules.by_squares()) {
    rules.patch_size = vision.size("patch_size", 14);
    rules.scale = vision.size("spatial_merge_size", 2);
    rules.repeats = vision.size("temporal_patch_size", 2);
    input.token = static_cast<int32_t>(config.size("image_token_id", 151655));
    return;
  }
  rules.patch_size = vision.size("patch_size", 32);
  rules.position_side = vision.size("image_size", 224) / rules.patch_size;
  check(rules.position_side >= 1, vision.name, "image_size is smaller than a patch of ", rules.patch_size);
  const bool latents = rules.family == ImageFamily::idefics2;
  input.token = static_cast<int32_t>(config.size("image_token_id", latents ? 32001 : 128257));
  if (latents)
    rules.latents = config.object("perceiver_config").size("resampler_n_latents", 64);
  else
    rules.scale = config.size("scale_factor", 2);
}

// The numbers are Pillow's.
ResizeFilter filter_of(const Part& processor, ResizeFilter absent) {
  switch (processor.size("resample", 0)) {
    case 0:
      return absent;
    case 1:
      return ResizeFilter::lanczos;
    case 2:
      return ResizeFilter::bilinear;
    case 3:
      return ResizeFilter::bicubic;
    default:
      fail(str(processor.name, "resample must be 1, 2 or 3: lanczos, bilinear or bicubic"));
  }
}

ResizeFilter default_filter(ImageFamily family) {
  switch (family) {
    case ImageFamily::idefics2:
      return ResizeFilter::bilinear;
    case ImageFamily::idefics3:
      return ResizeFilter::lanczos;
    case ImageFamily::qwen2_vl:
      return ResizeFilter::bicubic;
  }
  return ResizeFilter::bicubic;
}

// Older files have min_pixels and max_pixels instead of "size".
void read_pixels(const Part& processor, ImageRules& rules) {
  const Part size = processor.object("size");
  const auto pixels = [&](const char* key, const char* old_key, int64_t absent) {
    return processor.size(old_key, size.size(key, absent, kMostPixels), kMostPixels);
  };
  rules.fewest_pixels = pixels("shortest_edge", "min_pixels", rules.fewest_pixels);
  rules.most_pixels = pixels("longest_edge", "max_pixels", rules.most_pixels);
  for (const auto& [key, value] : {std::pair{"patch_size", rules.patch_size},
                                   {"merge_size", rules.scale},
                                   {"temporal_patch_size", rules.repeats}})
    check(processor.size(key, value) == value, processor.name, key, " must be that of the model, ", value);
}

void read_processor(const Part& processor, ImageRules& rules) {
  const bool idefics2 = rules.family == ImageFamily::idefics2;
  for (const char* key : {"do_resize", "do_rescale", "do_normalize", "do_convert_rgb"})
    check(processor.flag(key, true), processor.name, key, " must be true");
  rules.filter = filter_of(processor, default_filter(rules.family));
  if (rules.by_squares()) {
    rules.mean = kClipMean;
    rules.std = kClipStd;
  }
  rules.rescale = processor.number("rescale_factor", rules.rescale);
  rules.mean = processor.channels("image_mean", rules.mean);
  rules.std = processor.channels("image_std", rules.std);
  check(std::all_of(rules.std.begin(), rules.std.end(), [](float x) { return x > 0; }), processor.name,
        "image_std must be positive");
  if (rules.by_squares()) return read_pixels(processor, rules);
  rules.splits = processor.flag("do_image_splitting", !idefics2);
  const Part size = processor.object("size");
  check(size.json.empty() || size.find("longest_edge"), size.name, "longest_edge is missing");
  rules.longest_edge = size.size("longest_edge", idefics2 ? 980 : 4 * 364);
  rules.shortest_edge = size.size("shortest_edge", 378);
  rules.tile_edge = processor.object("max_image_size").size("longest_edge", 364);
}

void check_token_count(const Part& processor, const ImageRules& rules) {
  if (rules.by_squares()) return;
  const int64_t side = rules.tile_edge / rules.patch_size / std::max<int64_t>(rules.scale, 1);
  const int64_t tokens = rules.family == ImageFamily::idefics2 ? rules.latents : side * side;
  check(processor.size("image_seq_len", tokens) == tokens, processor.name,
        "image_seq_len must be that of the model, ", tokens);
}

}  // namespace

std::optional<ImageFamily> image_family_of(const std::string& type) {
  if (type == "idefics2") return ImageFamily::idefics2;
  if (type == "idefics3" || type == "smolvlm") return ImageFamily::idefics3;
  if (type == "qwen2_vl" || type == "qwen2_5_vl") return ImageFamily::qwen2_vl;
  return {};
}

std::optional<ImageInput> read_image_input(const std::string& folder, int64_t longest_edge) {
  const std::string config_path = folder + "/config.json";
  const Json config_json = read_object(config_path);
  const Part config{config_json, config_path + ": "};
  const std::optional<ImageFamily> family = image_family_of(config.text("model_type"));
  if (!family) return {};
  ImageInput input;
  input.rules.family = *family;
  read_model(config, input);
  const std::string both_path = folder + "/processor_config.json",
                    images_path = folder + "/preprocessor_config.json";
  const Json both_json = read_object(both_path), images_json = read_object(images_path);
  const Part both{both_json, both_path + ": "}, images{images_json, images_path + ": "};
  read_processor(both.find("image_processor") ? both.object("image_processor") : images, input.rules);
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
  try {
    check_rules(input.rules);
  } catch (const Error& error) {
    throw Error(folder + ": " + error.what(), error.where);
  }
  return input;
}

std::string to_json(const ImageInput& input) {
  const ImageRules& r = input.rules;
  Json json{{"family", name_of(r.family)},
            {"token", input.token},
            {"patch_size", r.patch_size},
            {"filter", name_of(r.filter)},
            {"rescale", r.rescale},
            {"mean", r.mean},
            {"std", r.std}};
  if (r.by_squares()) {
    json["scale"] = r.scale;
    json["repeats"] = r.repeats;
    json["fewest_pixels"] = r.fewest_pixels;
    json["most_pixels"] = r.most_pixels;
    return json_text(json);
  }
  json["position_side"] = r.position_side;
  json["longest_edge"] = r.longest_edge;
  json["splits"] = r.splits;
  if (r.family == ImageFamily::idefics2) {
    json["shortest_edge"] = r.shortest_edge;
    json["latents"] = r.latents;
  } else {
    json["tile_edge"] = r.tile_edge;
    json["scale"] = r.scale;
  }
  return json_text(json);
}

ImageInput parse_image_input(const std::string& text) {
  const Json json = parse_json_or_discard<Json>(text);
  check(json.is_object(), "the rules of images are no object");
  const Part part{json, "the rules of images: "};
  ImageInput input;
  ImageRules& r = input.rules;
  const auto family = named<ImageFamily>(part.text("family"));
  const auto filter = named<ResizeFilter>(part.text("filter"));
  check(family && filter, "the rules of images: ", family ? "filter" : "family", " is unknown");
  r.family = *family;
  r.filter = *filter;
  const Json* const token = part.find("token");
  check(token && token->is_number_integer() && *token >= 0 && *token <= INT32_MAX,
        "the rules of images: token must be a token");
  input.token = token->get<int32_t>();
  r.patch_size = part.size("patch_size", r.patch_size);
  r.position_side = part.size("position_side", r.position_side);
  r.longest_edge = part.size("longest_edge", r.longest_edge);
  r.shortest_edge = part.size("shortest_edge", r.shortest_edge);
  r.latents = part.size("latents", r.latents);
  r.tile_edge = part.size("tile_edge", r.tile_edge);
  r.scale = part.size("scale", r.scale);
  r.repeats = part.size("repeats", r.repeats);
  r.fewest_pixels = part.size("fewest_pixels", r.fewest_pixels, kMostPixels);
  r.most_pixels = part.size("most_pixels", r.most_pixels, kMostPixels);
  r.splits = part.flag("splits", r.splits);
  r.rescale = part.number("rescale", r.rescale);
  r.mean = part.channels("mean", r.mean);
  r.std = part.channels("std", r.std);
  check_rules(r);
  return input;
}

}  // namespace flatshard
