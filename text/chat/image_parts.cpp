#include "text/chat/image_parts.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/base64.h"
#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMarker = "<image>";
constexpr const char* kSources[] = {"path", "image", "url", "base64", "image_url"};
constexpr const char* kForms = "must be a path, a data URL, or an object with \"bytes\" or \"path\"";

// The member, unless it is missing or null.
const Json* member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found != object.end() && !found->is_null() ? &*found : nullptr;
}

std::string text_of(const Json& object, const char* name) {
  const Json* const found = member(object, name);
  return found && found->is_string() ? found->get<std::string>() : "";
}

// --- one image

ImageSource from_bytes(std::string_view base64) {
  std::optional<std::string> bytes = from_base64(base64);
  check(bytes.has_value(), "the bytes of an image are not base64");
  check(!bytes->empty(), "an image has no bytes");
  return {.bytes = std::move(*bytes)};
}

ImageSource from_text(std::string text, const std::string& folder) {
  if (text.starts_with("data:")) {
    constexpr std::string_view kBase64 = ";base64,";
    const size_t at = text.find(kBase64);
    check(at != text.npos, "the data URL of an image has no ", kBase64);
    return from_bytes(std::string_view(text).substr(at + kBase64.size()));
  }
  check(!text.starts_with("http://") && !text.starts_with("https://"), "the image ", printable(text),
        " is on the web: download it, and write its path");
  if (text.starts_with("file://")) text.erase(0, 7);
  check(!text.empty(), "the path of an image is empty");
  check(text.find('\0') == text.npos, "the path of an image has a zero byte");
  return {.path = (std::filesystem::path(folder) / text).lexically_normal().string()};
}

ImageSource source_of(const Json& value, const std::string& folder) {
  if (value.is_string()) return from_text(value.get<std::string>(), folder);
  check(value.is_object(), "an image is of type ", value.type_name(), ", ", kForms);
  const auto as_object = [](ImageSource source) {
    source.is_object = true;
    return source;
  };
  if (const std::string bytes = text_of(value, "bytes"); !bytes.empty()) return as_object(from_bytes(bytes));
  if (const std::string path = text_of(value, "path"); !path.empty())
    return as_object(from_text(path, folder));
  if (const std::string url = text_of(value, "url"); !url.empty()) return from_text(url, folder);
  fail(str("an image has neither bytes nor a path: it ", kForms));
}

// --- images listed by the record

bool names_picture(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto ends = [&](const char* ending) { return name.ends_with(ending); };
  return ends(".jpg") || ends(".jpeg") || ends(".png") || ends(".webp");
}

void append_listed(const Json* value, const std::string& folder, std::vector<ImageSource>& listed) {
  if (!value) return;
  if (!value->is_array()) {
    listed.push_back(source_of(*value, folder));
    return;
  }
  for (const Json& item : *value) listed.push_back(source_of(item, folder));
}

std::vector<ImageSource> listed_images(const Json& record, const std::string& folder) {
  std::vector<ImageSource> listed;
  append_listed(member(record, "images"), folder, listed);
  if (listed.empty()) append_listed(member(record, "image"), folder, listed);
  if (const Json* name = member(record, "file_name"); listed.empty() && name && name->is_string())
    if (names_picture(*name)) append_listed(name, folder, listed);
  return listed;
}

// --- messages

bool is_image_part(const Json& part) {
  const std::string type = text_of(part, "type");
  return type == "image" || type == "image_url";
}

const Json* source_of_part(const Json& part) {
  for (const char* name : kSources)
    if (const Json* found = member(part, name)) return found;
  return nullptr;
}

Json* content_of(Json& message) {
  if (!message.is_object()) return nullptr;
  const auto found = message.find("content");
  return found != message.end() ? &*found : nullptr;
}

Json image_part() { return {{"type", "image"}}; }
Json text_part(std::string text) { return {{"type", "text"}, {"text", std::move(text)}}; }

// Calls take(part) for every image part of a message.
template <class Take>
void each_image_part(Json& message, Take&& take) {
  Json* const content = content_of(message);
  if (!content || !content->is_array()) return;
  for (Json& part : *content)
    if (is_image_part(part)) take(part);
}

bool has_part_without_source(std::vector<Json>& messages) {
  bool found = false;
  for (Json& message : messages)
    each_image_part(message, [&](const Json& part) { found |= source_of_part(part) == nullptr; });
  return found;
}

// Appends the text as parts, with an image part for each marker. Returns the number of image parts.
size_t append_marked(const std::string& text, Json& parts) {
  size_t count = 0, begin = 0;
  for (size_t at; (at = text.find(kMarker, begin)) != text.npos; begin = at + kMarker.size(), ++count) {
    if (at > begin) parts.push_back(text_part(text.substr(begin, at - begin)));
    parts.push_back(image_part());
  }
  if (begin < text.size() || count == 0) parts.push_back(text_part(text.substr(begin)));
  return count;
}

// Replaces the markers of a message by image parts. Returns the number of image parts.
size_t replace_markers(Json& message) {
  Json* const content = content_of(message);
  if (!content || text_of(message, "role") == "assistant") return 0;
  Json parts = Json::array();
  size_t count = 0;
  if (content->is_string()) count = append_marked(*content, parts);
  if (content->is_array())
    for (const Json& part : *content) {
      if (text_of(part, "type") == "text" && member(part, "text") && part["text"].is_string())
        count += append_marked(part["text"], parts);
      else
        parts.push_back(part);
    }
  if (count > 0) *content = std::move(parts);
  return count;
}

// Inserts the images before the text of a message.
void show_first(size_t count, Json& message) {
  Json* const content = content_of(message);
  check(content && (content->is_string() || content->is_array()),
        "the first message of the user has no content to show images in");
  Json parts = Json::array();
  for (size_t i = 0; i < count; ++i) parts.push_back(image_part());
  if (content->is_string())
    parts.push_back(text_part(*content));
  else
    parts.insert(parts.end(), content->begin(), content->end());
  *content = std::move(parts);
}

void show_listed(size_t count, std::vector<Json>& messages) {
  if (count == 0 || has_part_without_source(messages)) return;
  size_t shown = 0;
  for (Json& message : messages) shown += replace_markers(message);
  if (shown > 0) return;
  const auto is_users = [](const Json& message) { return text_of(message, "role") == "user"; };
  const auto first = std::find_if(messages.begin(), messages.end(), is_users);
  show_first(count, first == messages.end() ? messages.front() : *first);
}

}  // namespace

std::vector<ShownImage> take_images(const Json& record, const std::string& folder,
                                    std::vector<Json>& messages) {
  const std::vector<ImageSource> listed = listed_images(record, folder);
  std::vector<ShownImage> images;
  if (messages.empty()) {
    for (const ImageSource& source : listed) images.push_back({.source = source});
    return images;
  }
  show_listed(listed.size(), messages);
  size_t used = 0;
  for (size_t i = 0; i < messages.size(); ++i)
    each_image_part(messages[i], [&](Json& part) {
      const Json* const source = source_of_part(part);
      ShownImage& image = images.emplace_back(ShownImage{.message = i, .source = {}});
      if (source)
        image.source = source_of(*source, folder);
      else if (used++ < listed.size())
        image.source = listed[used - 1];
      part = image_part();
    });
  check(listed.empty() || used == listed.size(), "the record lists ", counted(std::ssize(listed), "image"),
        ", but its messages show ", used,
        ": write {\"type\": \"image\"}, or <image> in a text, once for each");
  return images;
}

}  // namespace flatshard
