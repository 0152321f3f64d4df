#include "text/data/preference.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/json.h"
#include "text/input/null_members.h"

namespace flatshard {
namespace {

using nlohmann::ordered_json;

// The number of messages or bytes that two answers have in common at the beginning. In texts, a space before
// the first difference belongs to the answers, because tokenizers join it to the next word.
size_t common_beginning(const ordered_json& a, const ordered_json& b) {
  if (a.is_array())
    return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  const auto &s = a.get_ref<const std::string&>(), &t = b.get_ref<const std::string&>();
  auto count = static_cast<size_t>(std::mismatch(s.begin(), s.end(), t.begin(), t.end()).first - s.begin());
  while (count > 0 && count < s.size() && (static_cast<unsigned char>(s[count]) & 0xC0) == 0x80) --count;
  return count > 0 && s[count - 1] == ' ' ? count - 1 : count;
}

size_t length_of(const ordered_json& answer) {
  return answer.is_string() ? answer.get_ref<const std::string&>().size() : answer.size();
}

// The part [begin, end) of an answer.
ordered_json part_of(const ordered_json& answer, size_t begin, size_t end) {
  if (answer.is_string()) return answer.get_ref<const std::string&>().substr(begin, end - begin);
  ordered_json part = ordered_json::array();
  for (size_t i = begin; i < std::min(end, answer.size()); ++i) part.push_back(answer[i]);
  return part;
}

const ordered_json& member(const ordered_json& json, const char* name, const std::string& where) {
  const auto found = json.find(name);
  check(found != json.end(), where, ": has no \"", name,
        "\": a preference has \"prompt\", \"chosen\" and \"rejected\", or the last two with the prompt in "
        "both");
  check(found->is_string() || found->is_array(), where, ": \"", name, "\" is of type ", found->type_name(),
        ", must be a text or a list of messages");
  return *found;
}

}  // namespace

PreferencePair pair_of(const Record& record) {
  check(record.is_json, record.where, ": is a text, and a preference is a JSON object");
  ordered_json json = checked_json<ordered_json>(record.text, record.where);
  check(json.is_object(), record.where, ": is JSON of type ", json.type_name(), ", must be an object");
  drop_null_members(json);
  ordered_json chosen = member(json, "chosen", record.where),
               rejected = member(json, "rejected", record.where);
  check(chosen.is_string() == rejected.is_string(), record.where,
        ": \"chosen\" and \"rejected\" are not of the same type");
  if (!json.contains("prompt")) {
    const size_t prompt = common_beginning(chosen, rejected);
    check(prompt > 0, record.where,
          ": has no \"prompt\", and \"chosen\" and \"rejected\" do not begin with the same one");
    check(prompt < std::min(length_of(chosen), length_of(rejected)), record.where,
          ": of \"chosen\" and \"rejected\" one begins with the other, so neither the prompt nor a "
          "preference is known");
    json["prompt"] = part_of(chosen, 0, prompt);
    chosen = part_of(chosen, prompt, std::string::npos);
    rejected = part_of(rejected, prompt, std::string::npos);
  }
  json.erase("chosen");
  json.erase("rejected");
  const auto with = [&](ordered_json completion) {
    Record one = record;
    json["completion"] = std::move(completion);
    one.text = json_text(json);
    return one;
  };
  return {.chosen = with(std::move(chosen)), .rejected = with(std::move(rejected))};
}

LabeledAnswer labeled_answer_of(const Record& record, const Record& another) {
  const auto read = [](const Record& r) {
    check(r.is_json, r.where, ": is a text, and an answer with a label is a JSON object");
    ordered_json json = checked_json<ordered_json>(r.text, r.where);
    drop_null_members(json);
    check(json.is_object() && json.contains("prompt") && json.contains("completion") &&
              json.contains("label") && json["label"].is_boolean(),
          r.where, ": must have \"prompt\", \"completion\" and \"label\", which is true or false");
    return json;
  };
  ordered_json json = read(record);
  LabeledAnswer answer{.own = record, .other = record, .is_good = json["label"]};
  json.erase("label");
  answer.own.text = json_text(json);
  ordered_json completion = read(another)["completion"];
  check(completion.type() == json["completion"].type(), record.where, " and ", another.where,
        ": one completion is a text, the other a list of messages: make them alike");
  json["completion"] = std::move(completion);
  answer.other.text = json_text(json);
  return answer;
}

}  // namespace flatshard
