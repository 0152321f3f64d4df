#include "runtime/json_reader.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/json.h"

namespace flatshard {
namespace {

template <class Json>
bool is_positive(const Json& value) {
  return value.is_number() && value.template get<double>() > 0 && value.template get<double>() < 1e300;
}

std::string in_words(int64_t least, int64_t most) {
  if (most < INT64_MAX) return str("a whole number from ", least, " to ", most);
  return least == INT64_MIN ? "a whole number below 2^63"
                            : str("a whole number from ", least, " to 2^63 - 1");
}

}  // namespace

template <class Json>
BasicJsonReader<Json>::BasicJsonReader(const std::string& file, Json value, const std::string& keys)
    : object_(std::make_shared<const Json>(std::move(value))),
      place_(file + ": " + keys + (keys.empty() ? "" : ".")) {
  check(object_->is_object(), where(), keys.empty() ? ": must be a JSON object" : " must be an object");
}

template <class Json>
std::string BasicJsonReader<Json>::where() const {
  return place_.substr(0, place_.size() - (place_.ends_with('.') ? 1 : 2));
}

template <class Json>
void BasicJsonReader<Json>::label(const std::string& word) {
  place_ = where() + ' ' + word + ": ";
}

template <class Json>
const Json* BasicJsonReader<Json>::find(const std::string& key) const {
  const auto found = object_->find(key);
  if (found == object_->end()) return nullptr;
  read_.push_back(&*found);
  return read_.back();
}

template <class Json>
bool BasicJsonReader<Json>::has(const std::string& key) const {
  const Json* const found = find(key);
  return found && !found->is_null();
}

template <class Json>
bool BasicJsonReader<Json>::is_null(const std::string& key) const {
  const Json* const found = find(key);
  return found && found->is_null();
}

template <class Json>
const Json& BasicJsonReader<Json>::value(const std::string& key) const {
  const Json* const found = find(key);
  check(found != nullptr, where(key), " is missing");
  return *found;
}

template <class Json>
void BasicJsonReader<Json>::require(const std::string& key) const {
  check(has(key), where(key), " is missing");
}

template <class Json>
void BasicJsonReader<Json>::must(bool holds, const std::string& key, const std::string& wanted) const {
  if (holds) return;
  const Json* const found = find(key);
  fail(str(where(key), ' ', found ? "is " + short_json_text(*found) : "is missing", ", must be ", wanted));
}

template <class Json>
int64_t BasicJsonReader<Json>::whole(const std::string& key, int64_t least, int64_t most) const {
  const Json& v = value(key);
  // Numbers in files are unsigned unless they are negative; numbers in default objects are of type int.
  const bool fits = v.is_number_integer() &&
                    (!v.is_number_unsigned() || v.template get<uint64_t>() <= uint64_t{INT64_MAX}) &&
                    v.template get<int64_t>() >= least && v.template get<int64_t>() <= most;
  must(fits, key, in_words(least, most));
  return v.template get<int64_t>();
}

template <class Json>
double BasicJsonReader<Json>::number(const std::string& key) const {
  const Json& v = value(key);
  must(v.is_number(), key, "a number");
  return v.template get<double>();
}

template <class Json>
double BasicJsonReader<Json>::positive(const std::string& key) const {
  const Json& v = value(key);
  must(is_positive(v), key, "a positive number");
  return v.template get<double>();
}

template <class Json>
std::vector<double> BasicJsonReader<Json>::positives(const std::string& key, size_t count) const {
  const Json& list = value(key);
  must(list.is_array() && list.size() == count && std::all_of(list.begin(), list.end(), is_positive<Json>),
       key, str("a list of ", count, " positive numbers"));
  return list.template get<std::vector<double>>();
}

template <class Json>
bool BasicJsonReader<Json>::flag(const std::string& key, bool absent) const {
  if (!has(key)) return absent;
  const Json& v = value(key);
  must(v.is_boolean(), key, "true or false");
  return v.template get<bool>();
}

template <class Json>
std::string BasicJsonReader<Json>::text(const std::string& key) const {
  const Json& v = value(key);
  must(v.is_string(), key, "a string");
  return v.template get<std::string>();
}

template <class Json>
std::string BasicJsonReader<Json>::text(const std::string& key, const std::string& absent) const {
  return has(key) ? text(key) : absent;
}

template <class Json>
std::vector<std::string> BasicJsonReader<Json>::texts(const std::string& key, const char* wanted) const {
  if (!has(key)) return {};
  const Json& list = value(key);
  must(list.is_array() &&
           std::all_of(list.begin(), list.end(), [](const Json& item) { return item.is_string(); }),
       key, wanted);
  return list.template get<std::vector<std::string>>();
}

template <class Json>
BasicJsonReader<Json> BasicJsonReader<Json>::part(const Json& value, const std::string& key) const {
  check(value.is_object(), where(key), " is ", short_json_text(value), ", must be an object");
  return {std::shared_ptr<const Json>(object_, &value), where(key) + '.'};
}

template <class Json>
BasicJsonReader<Json> BasicJsonReader<Json>::object(const std::string& key) const {
  return part(value(key), key);
}

template <class Json>
BasicJsonReader<Json> BasicJsonReader<Json>::object(const std::string& key, const Json& defaults) const {
  Json members = defaults;
  if (has(key)) {
    const Json& own = value(key);
    must(own.is_object(), key, "an object");
    for (const auto& [name, member] : own.items())
      if (!member.is_null() || !defaults.contains(name)) members[name] = member;
  }
  return {std::make_shared<const Json>(std::move(members)), where(key) + '.'};
}

template <class Json>
std::vector<BasicJsonReader<Json>> BasicJsonReader<Json>::objects(const std::string& key, size_t most) const {
  const Json& list = value(key);
  must(list.is_array(), key, "a list");
  check(list.size() <= most, where(key), " has ", list.size(), " elements, must have at most ", most);
  std::vector<BasicJsonReader> all;
  for (size_t i = 0; i < list.size(); ++i) all.push_back(part(list[i], str(key, '[', i, ']')));
  return all;
}

template <class Json>
std::optional<std::string> BasicJsonReader<Json>::unknown_member(
    std::initializer_list<const char*> known) const {
  for (const auto& [name, member] : object_->items())
    if (std::find(read_.begin(), read_.end(), &member) == read_.end() &&
        std::find(known.begin(), known.end(), name) == known.end())
      return name;
  return {};
}

template class BasicJsonReader<nlohmann::json>;
template class BasicJsonReader<nlohmann::ordered_json>;

}  // namespace flatshard
