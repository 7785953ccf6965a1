"""Looks of the report: colours for light and dark, and the page's style sheet."""

from __future__ import annotations

__all__ = ["CHART_STYLE", "PAGE_STYLE", "standalone_style"]

_LIGHT = """
  --page:#f6f7f9; --card:#ffffff; --ink:#1b1f27; --soft:#5a6474; --line:#e2e6ec; --grid:#ebeef3;
  --accent:#2f6fdf; --good:#12805c; --bad:#c63b3b; --warn:#a86300; --chip:#eef2f8; --code:#f3f5f8;
  --good-back:#e3f5ee; --bad-back:#fbe9e9; --warn-back:#fcf1df;
  --c0:#2f6fdf; --c1:#dc6b12; --c2:#12906b; --c3:#8a4fd3; --c4:#cf3f4f; --c5:#0f93ad; --c6:#b58a06;
  --c7:#7b8494;
"""
_DARK = """
  --page:#101318; --card:#181c23; --ink:#e8ebf0; --soft:#9aa5b5; --line:#2a303a; --grid:#242a33;
  --accent:#78a8ff; --good:#4fd1a1; --bad:#ff8a8a; --warn:#f2b45a; --chip:#232a35; --code:#12161c;
  --good-back:#15342a; --bad-back:#3b1e22; --warn-back:#38290f;
  --c0:#78a8ff; --c1:#ff9d52; --c2:#4fd1a1; --c3:#c09bff; --c4:#ff8290; --c5:#4fcfe6; --c6:#e6c04a;
  --c7:#97a1b0;
"""
_FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'

_COLORS = "".join(
    f"svg.chart .s{i}{{stroke:var(--c{i})}}svg.chart .f{i}{{fill:var(--c{i})}}" for i in range(8)
)

CHART_STYLE = (
    _COLORS
    + """
svg.chart text{font-size:11px;fill:var(--soft);font-variant-numeric:tabular-nums}
svg.chart text.mid{text-anchor:middle} svg.chart text.end{text-anchor:end}
svg.chart text.key{fill:var(--ink)} svg.chart text.note{fill:var(--ink);font-size:10.5px;
  paint-order:stroke;stroke:var(--card);stroke-width:3px;stroke-linejoin:round}
svg.chart text.head{fill:var(--ink);font-size:13px;font-weight:600}
svg.chart line,svg.chart path{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
svg.chart .grid{stroke:var(--grid);stroke-width:1}
svg.chart .base,svg.chart .notch{stroke:var(--line);stroke-width:1}
svg.chart .rule{stroke-width:1.3;stroke-dasharray:6 4}
svg.chart .rule:not([class*=" s"]){stroke:var(--soft)}
svg.chart .mark{stroke:var(--ink);stroke-width:1.2;stroke-dasharray:2 3}
svg.chart .dashed{stroke-dasharray:7 4} svg.chart .dotted{stroke-dasharray:1.5 4}
svg.chart path.faint{stroke-width:1;opacity:.38} svg.chart circle.faint{opacity:.45}
svg.chart path.band{stroke:none;opacity:.16}
svg.chart .band.f0{fill:var(--c0)}
svg.chart .whisker{stroke-width:1.4} svg.chart .thick{stroke-width:5;opacity:.35}
svg.chart text.tiny{font-size:9px}
svg.chart .ring{stroke:var(--card);stroke-width:1.2}
svg.chart .hover{fill:transparent;stroke:none}
svg.chart .hover:hover{fill:var(--ink);fill-opacity:.18}
"""
)

PAGE_STYLE = (
    ":root{color-scheme:light dark;" + _LIGHT + "}"
    "@media (prefers-color-scheme:dark){:root{" + _DARK + "}}"
    "*{box-sizing:border-box}"
    "body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 "
    + _FONT
    + "}"
    + CHART_STYLE
    + """
svg.chart{display:block;width:100%;height:auto;overflow:visible}
main,header .in,nav .in{max-width:1180px;margin:0 auto;padding:0 24px}
header{padding:30px 0 18px}
h1{font-size:27px;line-height:1.2;margin:0 0 6px;letter-spacing:-.01em}
h1 small{font-weight:400;color:var(--soft);font-size:.72em;margin-left:.35em}
h2{font-size:19px;margin:38px 0 12px;letter-spacing:-.005em}
h3{font-size:14px;margin:0 0 2px;font-weight:600}
p{margin:0 0 10px} .soft{color:var(--soft)} .small{font-size:13px}
a{color:var(--accent);text-decoration:none} a:hover{text-decoration:underline}
nav{position:sticky;top:0;z-index:2;background:var(--page);border-bottom:1px solid var(--line)}
nav .in{display:flex;gap:20px;overflow-x:auto;padding-top:9px;padding-bottom:9px;font-size:14px}
nav a{color:var(--soft);white-space:nowrap}
section{scroll-margin-top:44px}
.badge{display:inline-block;border-radius:999px;padding:1px 10px;font-size:12.5px;font-weight:600;
  background:var(--chip);color:var(--soft);white-space:nowrap}
.badge.good{background:var(--good-back);color:var(--good)}
.badge.bad{background:var(--bad-back);color:var(--bad)}
.badge.warn{background:var(--warn-back);color:var(--warn)}
.facts{display:flex;flex-wrap:wrap;gap:6px 26px;margin:12px 0 0;font-size:14px}
.facts div span{color:var(--soft);margin-right:.45em}
.grid2{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:16px}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,265px),1fr));gap:14px}
.card{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:15px 17px;
  min-width:0}
.card.wide{grid-column:1/-1;overflow-x:auto}
.card.wide svg.chart{min-width:660px}
.card>p.small{margin:0 0 8px}
.headline .big{font-size:25px;font-weight:650;letter-spacing:-.02em;white-space:nowrap;
  font-variant-numeric:tabular-nums;margin:3px 0 0}
.headline .big .from{color:var(--soft);font-weight:400}
.headline .delta{font-weight:600;font-size:14px}
.headline svg.chart{margin-top:9px;max-width:290px}
.up{color:var(--good)} .down{color:var(--bad)}
.alert{border-left:4px solid var(--warn);background:var(--warn-back);border-radius:6px;
  padding:9px 14px;margin:14px 0 0}
.alert.bad{border-color:var(--bad);background:var(--bad-back)}
.scroll{overflow-x:auto}
caption{text-align:left;padding:2px 0 6px;font-weight:600}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th{text-align:left;font-weight:600;color:var(--soft);border-bottom:1px solid var(--line);
  padding:5px 12px 5px 0;white-space:nowrap}
td{padding:5px 12px 5px 0;border-bottom:1px solid var(--grid);vertical-align:top}
tr:last-child td{border-bottom:none}
td.n,th.n{text-align:right;white-space:nowrap}
code,pre,.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;
  font-size:12.5px}
pre{background:var(--code);border-radius:8px;padding:11px 13px;margin:0;overflow:auto;
  max-height:420px;white-space:pre-wrap;overflow-wrap:anywhere}
details>summary{cursor:pointer} details.fold>summary{color:var(--accent);font-size:14px}
details.fold[open]>summary{margin-bottom:10px}
.episode{padding:0;margin-bottom:12px;overflow:hidden}
.episode>summary{padding:12px 17px;list-style:none;display:flex;gap:10px;align-items:baseline;
  flex-wrap:wrap}
.episode>summary::-webkit-details-marker{display:none}
.episode>summary::before{content:"▸";color:var(--soft);width:1em}
.episode[open]>summary::before{content:"▾"}
.episode>summary .goal{flex:1 1 320px;min-width:0;overflow-wrap:anywhere}
.episode .turns{margin:0;padding:0 17px 15px;list-style:none}
.turn{display:grid;grid-template-columns:30px minmax(0,1fr);gap:4px 8px;padding:10px 0;
  border-top:1px solid var(--grid)}
.turn .no{color:var(--soft);font-size:12.5px;padding-top:2px}
.page{background:var(--code);border-radius:8px;padding:9px 12px;white-space:pre-wrap;
  overflow-wrap:anywhere;max-height:300px;overflow:auto;font-size:12.5px;line-height:1.55}
.page .chip{background:var(--card);border:1px solid var(--line);border-radius:5px;padding:0 6px;
  display:inline-block;margin:1px 0}
.page .chip.on{background:var(--good-back);border-color:var(--good);color:var(--good)}
.said{margin-top:7px;display:flex;flex-wrap:wrap;gap:4px 8px;align-items:baseline}
.said .arrow{color:var(--accent);font-weight:700}
.said .act{font-weight:600;overflow-wrap:anywhere;white-space:pre-wrap}
.raw{color:var(--soft);white-space:pre-wrap;overflow-wrap:anywhere;margin-top:4px;font-size:12.5px}
.raw .think{font-style:italic}
.effect{position:relative;display:inline-block;width:84px;height:10px;border-radius:3px;
  background:linear-gradient(90deg,var(--chip) 49.5%,var(--soft) 49.5% 50.5%,var(--chip) 50.5%)}
.effect i{position:absolute;top:0;bottom:0;border-radius:2px}
.effect .up{background:var(--good)} .effect .down{background:var(--bad)}
footer{color:var(--soft);font-size:13px;margin:44px 0 30px}
@media print{nav{display:none}.card{break-inside:avoid}}
"""
)


def standalone_style() -> str:
    """Style of an SVG file that is shown by itself or through ``<img>``."""
    return (
        ":root{" + _LIGHT + "}@media (prefers-color-scheme:dark){:root{" + _DARK + "}}"
        f"text{{font-family:{_FONT}}}" + CHART_STYLE
    )
