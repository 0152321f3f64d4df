#include "text/jinja/jinja_print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "runtime/check.h"

namespace flatshard {
namespace {

std::string hex(const char* prefix, uint32_t code, int digits) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = prefix;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) text += kDigits[code >> shift & 15];
  return text;
}

// Whether repr() escapes the code point: controls, formatting characters, spaces other than ' ', surrogates
// and private use. Code points that no Unicode version has assigned are printed.
bool is_escaped(char32_t c) {
  struct Range {
    char32_t first, last;
  };
  constexpr Range kRanges[] = {{0x00, 0x1f},       {0x7f, 0xa0},       {0xad, 0xad},     {0x600, 0x605},
                               {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},   {0x1680, 0x1680},
                               {0x180e, 0x180e},   {0x2000, 0x200f},   {0x2028, 0x202f}, {0x205f, 0x206f},
                               {0x3000, 0x3000},   {0xd800, 0xf8ff},   {0xfeff, 0xfeff}, {0xfff0, 0xfffb},
                               {0xe0001, 0xe007f}, {0xf0000, 0x10ffff}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [&](const Range& range) { return c >= range.first && c <= range.last; });
}

std::string escaped_repr(char32_t c, char quote) {
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\t') return "\\t";
  if (c == U'\\' || c == static_cast<char32_t>(quote)) return {'\\', static_cast<char>(c)};
  if (!is_escaped(c)) return "";
  return c < 0x100 ? hex("\\x", c, 2) : c < 0x10000 ? hex("\\u", c, 4) : hex("\\U", c, 8);
}

std::string escaped_json(char32_t c, bool ascii) {
  constexpr std::string_view kNamed = "\"\"\\\\\bb\ff\nn\rr\tt";
  for (size_t i = 0; i < kNamed.size(); i += 2)
    if (c == static_cast<char32_t>(kNamed[i])) return {'\\', kNamed[i + 1]};
  if (c < 0x20 || (ascii && c > 0x7e && c < 0x10000)) return hex("\\u", c, 4);
  if (!ascii || c < 0x10000) return "";
  return hex("\\u", 0xd800 + ((c - 0x10000) >> 10), 4) + hex("\\u", 0xdc00 + ((c - 0x10000) & 0x3ff), 4);
}

// Appends the text; each code point for which `escape` returns more than "" is replaced by the result. A
// replacement has the source of its code point.
template <class Escape>
void append_escaped(SourcedText& out, const SourcedText& text, Escape&& escape) {
  const std::string& bytes = text.bytes();
  size_t run = 0, done = 0;
  for (size_t at = 0; at < bytes.size();) {
    size_t next = at;
    const char32_t c = next_code_point(bytes, next);
    while (text.runs()[run].end <= at) ++run;
    if (const std::string escaped = escape(c); !escaped.empty()) {
      out.append(text, done, at);
      out.append(escaped, text.runs()[run].source);
      done = next;
    }
    at = next;
  }
  out.append(text, done, bytes.size());
}

SourcedText repr_of_text(const SourcedText& text) {
  const std::string& bytes = text.bytes();
  const bool single_only = bytes.find('\'') != bytes.npos && bytes.find('"') == bytes.npos;
  const char quote = single_only ? '"' : '\'';
  SourcedText out(std::string_view(&quote, 1));
  append_escaped(out, text, [&](char32_t c) { return escaped_repr(c, quote); });
  out.append(std::string_view(&quote, 1));
  return out;
}

SourcedText repr_of_list(const JinjaList& list) {
  const bool is_tuple = list.form == JinjaList::Form::tuple;
  SourcedText out(is_tuple ? "(" : "[");
  for (size_t i = 0; i < list.values.size(); ++i) {
    if (i > 0) out.append(", ");
    out.append(jinja_repr(list.values[i]));
  }
  out.append(is_tuple ? list.values.size() == 1 ? ",)" : ")" : "]");
  return out;
}

SourcedText repr_of_dict(const JinjaDict& dict) {
  SourcedText out("{");
  for (size_t i = 0; i < dict.pairs.size(); ++i) {
    if (i > 0) out.append(", ");
    out.append(jinja_repr(dict.pairs[i].first));
    out.append(": ");
    out.append(jinja_repr(dict.pairs[i].second));
  }
  out.append("}");
  return out;
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {
    items_ = style.item_separator.value_or(SourcedText(style.indent ? "," : ", "));
    keys_ = style.key_separator.value_or(SourcedText(": "));
  }

  void write(const JinjaValue& value) {
    if (value.is(JinjaKind::text)) return write_text(value.text());
    if (value.is(JinjaKind::dict)) return write_dict(value.dict().pairs);
    if (value.is(JinjaKind::list)) return write_list(value);
    out_.append(scalar(value));
  }
  SourcedText take() { return std::move(out_); }

 private:
  static std::string scalar(const JinjaValue& value) {
    switch (value.kind()) {
      case JinjaKind::none:
        return "null";
      case JinjaKind::boolean:
        return value.boolean() ? "true" : "false";
      case JinjaKind::integer:
        return str(value.integer());
      case JinjaKind::number: {
        const double number = value.number();
        if (std::isnan(number)) return "NaN";
        return std::isinf(number) ? number < 0 ? "-Infinity" : "Infinity" : python_float(number);
      }
      default:
        value.check_defined();
        fail(str("a value of type ", value.type(), " has no JSON form"));
    }
  }

  void write_text(const SourcedText& text) {
    out_.append("\"");
    append_escaped(out_, text, [&](char32_t c) { return escaped_json(c, style_.ascii); });
    out_.append("\"");
  }

  void write_list(const JinjaValue& value) {
    using Form = JinjaList::Form;
    const Form form = value.list().form;
    check(form == Form::list || form == Form::tuple, "a value of type ", value.type(), " has no JSON form");
    write_all('[', ']', value.list().values, [&](const JinjaValue& item) { write(item); });
  }

  void write_dict(JinjaValue::Pairs pairs) {
    if (style_.sort_keys)
      std::stable_sort(pairs.begin(), pairs.end(),
                       [](const auto& a, const auto& b) { return jinja_order(a.first, b.first) < 0; });
    write_all('{', '}', pairs, [&](const auto& pair) {
      write_text(pair.first.is(JinjaKind::text) ? pair.first.text() : SourcedText(scalar(pair.first)));
      out_.append(keys_);
      write(pair.second);
    });
  }

  template <class Elements, class Write>
  void write_all(char open, char close, const Elements& elements, Write&& write_element) {
    out_.append(std::string_view(&open, 1));
    ++level_;
    for (size_t i = 0; i < elements.size(); ++i) {
      if (i > 0) out_.append(items_);
      new_line();
      write_element(elements[i]);
    }
    --level_;
    if (!elements.empty()) new_line();
    out_.append(std::string_view(&close, 1));
  }

  void new_line() {
    if (!style_.indent) return;
    out_.append("\n");
    for (int i = 0; i < level_; ++i) out_.append(*style_.indent);
  }

  const JsonStyle& style_;
  SourcedText items_, keys_, out_;
  int level_ = 0;
};

}  // namespace

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[32];
  const auto end = std::to_chars(digits, std::end(digits), value, std::chars_format::scientific).ptr;
  const std::string text(digits, end);
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return text;
  char fixed[64];
  std::string plain(fixed, std::to_chars(fixed, std::end(fixed), value, std::chars_format::fixed).ptr);
  return plain.find('.') == plain.npos ? plain + ".0" : plain;
}

SourcedText jinja_repr(const JinjaValue& value) {
  switch (value.kind()) {
    case JinjaKind::undefined:
      return SourcedText("Undefined");
    case JinjaKind::none:
      return SourcedText("None");
    case JinjaKind::boolean:
      return SourcedText(value.boolean() ? "True" : "False");
    case JinjaKind::integer:
      return SourcedText(str(value.integer()));
    case JinjaKind::number:
      return SourcedText(python_float(value.number()));
    case JinjaKind::text:
      return repr_of_text(value.text());
    case JinjaKind::dict:
      return repr_of_dict(value.dict());
    case JinjaKind::list:
      if (const auto form = value.list().form;
          form == JinjaList::Form::list || form == JinjaList::Form::tuple)
        return repr_of_list(value.list());
      [[fallthrough]];
    default:
      fail(str("a value of type ", value.type(), " cannot be printed"));
  }
}

SourcedText jinja_str(const JinjaValue& value) {
  if (value.is(JinjaKind::text)) return value.text();
  if (value.is(JinjaKind::undefined)) return {};
  return jinja_repr(value);
}

SourcedText jinja_json(const JinjaValue& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value);
  return writer.take();
}

}  // namespace flatshard
