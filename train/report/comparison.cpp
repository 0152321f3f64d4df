#include "train/report/comparison.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <sstream>

#include "runtime/check.h"
#include "train/report/html.h"
#include "train/report/run_summary.h"

namespace flatshard {
namespace {

// A config key in which runs differ.
struct ConfigDifference {
  std::string key;                                 // "optimizer.lr"
  std::vector<std::optional<std::string>> values;  // the value in each config, as TOML; empty: none
};

// Calls visit(key, value) for the lines "[section]" and "name = value" that to_toml() writes.
template <class Visit>
void each_value(const std::string& config, Visit&& visit) {
  std::istringstream lines(config);
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find(" = ");
    if (line.starts_with('[') && line.ends_with(']'))
      section = line.substr(1, line.size() - 2) + '.';
    else if (!line.starts_with('#') && equals != line.npos)
      visit(section + line.substr(0, equals), line.substr(equals + 3));
  }
}

bool is_equal_in_all(const ConfigDifference& d) {
  return std::all_of(d.values.begin(), d.values.end(),
                     [&](const auto& value) { return value == d.values.front(); });
}

// The differences in the order of the first config that has the key, without run.dir, which always differs.
// They are found line by line, so that keys of other versions of this program are compared, too.
std::vector<ConfigDifference> config_differences(const std::vector<ReportedRun>& runs) {
  std::vector<ConfigDifference> all;
  for (size_t i = 0; i < runs.size(); ++i)
    each_value(runs[i].config, [&](const std::string& key, const std::string& value) {
      auto found = std::find_if(all.begin(), all.end(), [&](const auto& d) { return d.key == key; });
      if (found == all.end()) found = all.insert(found, {.key = key, .values = {runs.size(), std::nullopt}});
      found->values[i] = value;
    });
  std::erase_if(all, [](const ConfigDifference& d) { return d.key == "run.dir" || is_equal_in_all(d); });
  return all;
}

// A TOML string as it is typed on a command line, without quotes.
std::string typed(const std::string& value) {
  const bool is_quoted = value.size() > 1 && value.front() == '"' && value.back() == '"';
  return is_quoted ? value.substr(1, value.size() - 2) : value;
}

// The differing keys of a run as "optimizer.lr=0.003", one a line.
std::string own_settings(const std::vector<ConfigDifference>& differences, size_t run) {
  std::string lines;
  for (const ConfigDifference& d : differences)
    if (const auto& value = d.values[run]) lines += str(lines.empty() ? "" : "\n", d.key, '=', typed(*value));
  return lines;
}

std::string run_name_html(const std::vector<ReportedRun>& runs, size_t run) {
  return str("<span class=\"key\" data-run=\"", run, "\">", escaped(runs[run].name), "</span>");
}

// More digits than a time in seconds since 1970 has.
std::string sorted_by(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.15g", number);
  return text;
}

std::string cell_html(const SummaryItem& item) {
  const bool has_number = item.number && std::isfinite(*item.number);
  return str("<td", item.is_text ? " class=\"text\"" : "",
             has_number ? str(" data-value=\"", sorted_by(*item.number), '"') : "", '>', item.value,
             item.brief.empty() ? "" : " <span class=\"note\">" + item.brief + "</span>", "</td>");
}

}  // namespace

std::string run_list_html(const std::vector<ReportedRun>& runs) {
  const std::vector<ConfigDifference> differences = config_differences(runs);
  std::string html =
      "<div id=\"filter\"></div>\n<div class=\"wide\"><table class=\"list\"><thead><tr><th "
      "scope=\"col\">Run</th>";
  for (const SummaryItem& item : list_items(runs.front()))
    html += str("<th scope=\"col\">", item.name, "</th>");
  html += "</tr></thead>\n<tbody>\n";
  for (size_t run = 0; run < runs.size(); ++run) {
    html += str("<tr data-config=\"", escaped(own_settings(differences, run)),
                "\"><th scope=\"row\" class=\"text\">", run_name_html(runs, run), "</th>");
    for (const SummaryItem& item : list_items(runs[run])) html += cell_html(item);
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string config_differences_html(const std::vector<ReportedRun>& runs) {
  const std::string title = "<h2>Config differences</h2>\n";
  const std::vector<ConfigDifference> differences = config_differences(runs);
  if (differences.empty()) return title + "<p class=\"note\">The configs differ in run.dir only.</p>\n";
  std::string html = title + "<div class=\"wide\"><table class=\"runs\"><thead><tr><th>key</th>";
  for (size_t run = 0; run < runs.size(); ++run)
    html += str("<th scope=\"col\">", run_name_html(runs, run), "</th>");
  html += "</tr></thead>\n<tbody>\n";
  for (const ConfigDifference& d : differences) {
    html += str("<tr><th scope=\"row\"><code>", escaped(d.key), "</code></th>");
    for (const std::optional<std::string>& value : d.values)
      html += value ? str("<td><code>", escaped(*value), "</code></td>") : str("<td>", kNothing, "</td>");
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace flatshard
