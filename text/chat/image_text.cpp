#include "text/chat/image_text.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "runtime/check.h"
#include "runtime/error_context.h"
#include "runtime/text.h"
#include "runtime/utf8.h"

namespace flatshard {
namespace {

constexpr std::string_view kFake = "<fake_token_around_image>";

std::vector<size_t> markers_of(const Rendering& rendering, std::string_view marker) {
  std::vector<size_t> markers;
  auto data = rendering.data.begin();
  for (size_t at = 0; (at = rendering.text.find(marker, at)) != std::string::npos; at += marker.size()) {
    while (data != rendering.data.end() && data->end <= at) ++data;
    if (data == rendering.data.end() || data->begin >= at + marker.size()) markers.push_back(at);
  }
  return markers;
}

// Whether the text begins with neither white space nor a possible special token.
bool touches(std::string_view text) {
  if (text.empty() || text.front() == '<') return false;
  size_t at = 0;
  return !is_space(next_code_point(text, at));
}

// Maps positions of a text while parts of it are replaced in ascending order.
class Positions {
 public:
  void replace(size_t end, size_t new_end) { ends_.push_back({end, new_end}); }
  // The new value of a position that no replacement covers.
  size_t of(size_t position) const {
    const auto after = std::partition_point(ends_.begin(), ends_.end(),
                                            [=](const auto& end) { return end.first <= position; });
    return after == ends_.begin() ? position : position - std::prev(after)->first + std::prev(after)->second;
  }
  void move(std::vector<TextSpan>& spans) const {
    for (TextSpan& span : spans) {
      span.begin = of(span.begin);
      span.end = of(span.end);
    }
  }

 private:
  std::vector<std::pair<size_t, size_t>> ends_;  // ends of the replaced parts, before and after
};

}  // namespace

size_t count_images(const Rendering& rendering, const ImageRules& rules) {
  return markers_of(rendering, image_marker(rules)).size();
}

Rendering with_image_text(const Rendering& rendering, std::span<const ShownImage> images,
                          const ImageRules& rules) {
  const std::string_view marker = image_marker(rules);
  const std::vector<size_t> markers = markers_of(rendering, marker);
  check(markers.size() == images.size(), "the chat template shows ", markers.size(), " of ",
        counted(std::ssize(images), "image"),
        ": use the template of a model that reads images, which prints ", marker, " for each");
  Rendering whole{.data = rendering.data, .generated = rendering.generated};
  Positions positions;
  size_t done = 0;
  for (size_t i = 0; i < markers.size(); ++i) {
    whole.text.append(rendering.text, done, markers[i] - done);
    done = markers[i] + marker.size();
    const ImageLayout layout =
        with_place(name_of(images[i].source), [&] { return layout_of(rules, images[i].size); });
    const std::string text = expansion(rules, layout);
    const bool follows = !whole.images.empty() && whole.images.back().end == whole.text.size();
    const bool shares_fake = rules.family == ImageFamily::idefics2 && follows;
    const size_t begin = whole.text.size();
    whole.text.append(text, shares_fake ? kFake.size() : 0);
    whole.images.push_back({begin, whole.text.size()});
    if (rules.family == ImageFamily::idefics2 && touches(std::string_view(rendering.text).substr(done)))
      whole.text += ' ';
    positions.replace(done, whole.text.size());
  }
  whole.text.append(rendering.text, done);
  positions.move(whole.data);
  positions.move(whole.generated);
  return whole;
}

}  // namespace flatshard
