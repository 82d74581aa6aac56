// The fixed parts of a page: style, script, and the loader of Vega's modules.
#pragma once

namespace isobath {

extern const char* const kPageStyle;   // CSS
extern const char* const kPageScript;  // draws the charts in the colours of the page, again when these change
extern const char* const kVegaLoader;  // {modules}: calls of define(name, function (exports, module, require) {...})

}  // namespace isobath
