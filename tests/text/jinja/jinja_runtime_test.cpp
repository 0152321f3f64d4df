// What the templates of chat_template_test.cpp cannot show: errors and limits.

#include "text/jinja/jinja_runtime.h"

#include "build_config.h"
#include "tests/test.h"
#include "text/jinja/jinja_parser.h"

using namespace flatshard;

namespace {

std::string run(const std::string& source, const JinjaSettings& settings = {}) {
  return run_jinja(*parse_jinja(source, "chat"), "chat", {}, settings).bytes();
}

std::string error(const std::string& source, const JinjaSettings& settings = {}) {
  return test::error_of([&] { run(source, settings); });
}

}  // namespace

TEST_CASE("an error names the template, the line and the construct") {
  CHECK(error("a\nb {{ x.y }}") == "chat:2: 'x' is undefined");
  CHECK(error("{% if 1 %}\n{{ 1 | nofilter }}\n{% endif %}") ==
        "chat:2: the filter 'nofilter' is not supported");
  CHECK(error("\n\n{{ 1 is notest }}") == "chat:3: the test 'notest' is not supported");
  CHECK(error("{{ {}.x.y }}") == "chat:1: a value of type dict has no member 'x'");
  CHECK(error("{{ 'a'.nomethod() }}") == "chat:1: a value of type str has no member 'nomethod'");
  CHECK(error("{% for x in 5 %}{% endfor %}") == "chat:1: a value of type int cannot be iterated over");
  CHECK(error("{% macro m(a) %}{% endmacro %}\n{{ m(1, 2) }}") ==
        "chat:2: the macro m takes at most 1 arguments, is given 2");
  CHECK(error("{% set x %}\n\n{% endif %}{% endset %}") ==
        "chat:3: the statement {% endif %} is not supported");
  CHECK(error("x\n{% if a b %}{% endif %}") == "chat:2: expected %}, found \"b\"");
  CHECK(error("a\n{% break %}b") == "chat:2: {% break %} and {% continue %} must be inside a loop");
  CHECK(error("{% if a %}\n") == "chat:1: the template ends before {% endif %}");
}

TEST_CASE("an unknown statement fails only when it is executed") {
  CHECK(run("{% if false %}{% include 'x' %}{% endif %}ok") == "ok");
  CHECK(error("{% include 'x' %}") == "chat:1: the statement {% include %} is not supported");
}

TEST_CASE("the number of steps is limited, whatever the template spends them on") {
  const JinjaSettings few{.date = "", .limits = {.steps = 100'000, .depth = 400}};
  for (const char* source : {
           "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
           "{% set x = 'x' * 1000000 %}{% for a in range(99) %}{% if x in x %}{% endif %}{% endfor %}",
           "{% set x = 'x' * 1000000 %}{% for a in range(99) %}{% set y = x | upper %}{% endfor %}",
           "{% set x = [0] * 90000 %}{% for a in range(99) %}{% set y = x | sort %}{% endfor %}",
           "{% set x = 'x' * 1000000 %}{% for a in range(99) %}{{ x }}{% endfor %}",
       }) {
    CAPTURE(source);
    CHECK(error(source, few) == "chat:1: the template needs more than 100000 steps");
  }
}

TEST_CASE("a message of any length is shortened") {
  const std::string raised = error("{{ raise_exception('a' ~ 'ü' * 1000000) }}");
  CHECK(raised.starts_with("chat:1: aüü"));
  CHECK(raised.ends_with("üü... (2000001 bytes)"));
  CHECK(raised.size() < 2100);
  CHECK(error("{{ {}['x' * 1000000].y }}").size() < 2100);
}

TEST_CASE("a reversed text has its code points in reverse, of any slice") {
  CHECK(run("{{ 'aüb€c'[::-1] }} {{ 'aüb€c'[3:0:-1] }} {{ 'aüb€c'[::-2] }} {{ 'aüb€c'[-2:9:1] }} {{ ''[::-1] "
            "}}") == "c€büa €bü cba €c ");
  CHECK(run("{{ 'aüb'|reverse }}{{ 'abc'[5:] }}{{ 'abc'[2:1] }}") == "büa");
}

TEST_CASE("a template that reverses a long text many times ends in time") {
  if (*kSanitizer != '\0') return test::skip("takes minutes under a sanitizer");
  const std::string source =
      "{% set x = 'xy' * 4000000 %}{% for i in range(9999) %}{% set y = x[::-1] %}{% endfor %}";
  CHECK(error(source, {.date = "", .limits = {.steps = 2'000'000}}) ==
        "chat:1: the template needs more than 2000000 steps");
}

TEST_CASE("recursion ends in an error before the stack does") {
  const std::string deep = "chat:1: statements and macros are nested more than 400 levels deep";
  CHECK(error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}") == deep);
  CHECK(error("{% macro m(a=m()) %}{% endmacro %}{{ m() }}") == deep);
  CHECK(
      error("{% macro m(x) %}{% for i in x %}{% if 1 %}{% set y | trim %}{{ [m(x)] }}{% endset %}{% endif %}"
            "{% endfor %}{% endmacro %}{{ m([1]) }}") == deep);
}

TEST_CASE("the date is the given one") {
  CHECK(run("{{ strftime_now('%d %b %Y') }}", {.date = "2024-02-29", .limits = {}}) == "29 Feb 2024");
  CHECK(error("{{ strftime_now('%d') }}") ==
        "chat:1: the template prints the date with strftime_now(), but no date is set");
  for (const char* date : {"today", "2024-2-29", "2023-02-29", "2024-13-01", "0000-01-01", "2024-02-29 "})
    CHECK(test::missing_from(error("{{ strftime_now('%d') }}", {.date = date, .limits = {}}),
                             {"chat:1: the date is", date, "YYYY-MM-DD"}) == "");
}

TEST_CASE("every format of a date prints what Python prints for midnight of that day, without a zone") {
  const auto date = [](const std::string& format) {
    return run("{{ strftime_now('" + format + "') }}", {.date = "2024-02-09", .limits = {}});
  };
  CHECK(date("%B %d, %Y") == "February 09, 2024");
  CHECK(date("%Y-%m-%d") == "2024-02-09");
  CHECK(date("%-d %B %Y|%e|%a %A|%b|%y|%j|%u%w|%U %W|%G-%V") ==
        "9 February 2024| 9|Fri Friday|Feb|24|040|55|05 06|2024-06");
  CHECK(date("%H:%M:%S.%f|%I %p|%z%Z|%x|%X|%c|%D %F") ==
        "00:00:00.000000|12 AM||02/09/24|00:00:00|Fri Feb  9 00:00:00 2024|02/09/24 2024-02-09");
  CHECK(date("100%%|%%f|%%%f|end%") == "100%|%f|%000000|end%");
}
