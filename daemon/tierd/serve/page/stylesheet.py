"""The style of all pages, for light and dark, and the Content-Security-Policy that allows it and nothing else."""

import base64
import hashlib
from typing import Final

_LIGHT: Final = (
    "--page:#fff;--text:#1b1f24;--quiet:#57606a;--line:#d0d7de;--panel:#f6f8fa;--link:#0550ae;--bad:#ffebe9;"
    "--bad-line:#a40e26;--soon:#fff4ce;--soon-line:#7d4e00;--good:#dafbe1;--good-line:#116329;--focus:#0550ae;"
    "--local:#0969da;--active:#54aeff;--tier:#1a7f37;--compacted:#8250df;--copying:#bf8700;--expired:#8c959f;"
    "--standby:#0a7e8c;--gap:#cf222e"
)
_DARK: Final = (
    "--page:#0d1117;--text:#e6edf3;--quiet:#9da7b3;--line:#30363d;--panel:#161b22;--link:#79c0ff;--bad:#3d1518;"
    "--bad-line:#ff9492;--soon:#332700;--soon-line:#f2cc60;--good:#0f2f1b;--good-line:#7ee787;--focus:#79c0ff;"
    "--local:#58a6ff;--active:#1f6feb;--tier:#3fb950;--compacted:#bc8cff;--copying:#e3b341;--expired:#6e7681;"
    "--standby:#39c5cf;--gap:#ff7b72"
)
_RULES: Final = """
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:15px/1.5 system-ui,"DejaVu Sans",sans-serif}
a{color:var(--link)}
a:focus-visible,button:focus-visible,input:focus-visible,select:focus-visible,[tabindex]:focus-visible
{outline:3px solid var(--focus);outline-offset:2px}
.skip{position:absolute;left:-999rem}
.skip:focus{left:1rem;top:.5rem;background:var(--page);padding:.5rem 1rem;z-index:1}
header,main,footer{max-width:84rem;margin:0 auto;padding:0 1.5rem}
header{display:flex;flex-wrap:wrap;gap:.25rem 1.5rem;align-items:baseline;padding-top:1rem;padding-bottom:.75rem;
border-bottom:1px solid var(--line)}
.brand{font-weight:700;font-size:1.15rem;color:var(--text);text-decoration:none}
nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;margin:0;padding:0}
nav [aria-current]{font-weight:700;color:var(--text);text-decoration-thickness:2px}
time{white-space:nowrap}main>nav:first-child{margin-top:1rem}main>nav+h1{margin-top:.5rem}
.whose{margin:0 0 0 auto;color:var(--quiet)}
footer{color:var(--quiet);border-top:1px solid var(--line);margin-top:3rem;padding-top:.75rem;padding-bottom:2rem}
h1{font-size:1.6rem;line-height:1.25;margin:1.5rem 0 .75rem;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin:2.25rem 0 .5rem}h3{font-size:1rem;margin:1.5rem 0 .25rem}
p{margin:.4rem 0;overflow-wrap:anywhere}.quiet{color:var(--quiet)}
.ready,.trouble,.notice{padding:.5rem .9rem;border-left:4px solid;border-radius:3px}
.ready{background:var(--good);border-color:var(--good-line)}
.trouble{background:var(--bad);border-color:var(--bad-line)}
.notice{background:var(--soon);border-color:var(--soon-line)}
ul.problems{list-style:none;padding:0}ul.problems li{margin:.4rem 0;overflow-wrap:anywhere}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(15rem,1fr));gap:1rem;margin:1.25rem 0}
.card{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:.8rem 1rem}
.card h2{font-size:.9rem;font-weight:600;margin:0;color:var(--quiet)}
.card .value{font-size:1.25rem;font-weight:650;margin:.1rem 0}.card p{margin:.1rem 0}
.card.bad{border-left:4px solid var(--bad-line)}.card.soon{border-left:4px solid var(--soon-line)}
.card.good{border-left:4px solid var(--good-line)}
.scroll{overflow-x:auto;margin-top:.5rem}
table{border-collapse:collapse;width:100%}caption{text-align:left;color:var(--quiet);padding:.25rem 0}
th,td{padding:.3rem .8rem .3rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
thead th{white-space:nowrap;vertical-align:bottom}tbody th{font-weight:500}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
tr.bad>*{background:var(--bad)}tr.soon>*{background:var(--soon)}
td:last-child:not(.n){min-width:14rem}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(15rem,1fr));gap:.5rem 1.5rem;margin:.75rem 0}
dt{color:var(--quiet);font-size:.85rem}dd{margin:0;overflow-wrap:anywhere}
form{display:flex;flex-wrap:wrap;gap:.5rem 1rem;align-items:end;margin:1rem 0}
label{display:block;color:var(--quiet);font-size:.85rem}
input,select,button{font:inherit;color:var(--text);background:var(--page);border:1px solid var(--quiet);
border-radius:4px;padding:.3rem .6rem;height:2.25rem}button{background:var(--panel);cursor:pointer}
article{max-width:60rem}article p,article li{margin:.6rem 0}
.pages{display:flex;gap:1.25rem;margin:.75rem 0}
pre{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:1rem;white-space:pre-wrap;
overflow-wrap:anywhere;font:13px/1.55 ui-monospace,"DejaVu Sans Mono",monospace}
code,.id{font:.92em ui-monospace,"DejaVu Sans Mono",monospace}
svg{display:block;max-width:100%}
svg.picture{width:100%;min-width:44rem;height:auto}svg text{fill:var(--text);font-size:13px}svg .axis{fill:var(--quiet)}
svg .lane{fill:var(--panel)}svg .mark{stroke:var(--quiet);stroke-dasharray:4 3}
svg .local{fill:var(--local)}svg .active{fill:var(--active)}svg .tier{fill:var(--tier)}
svg .compacted{fill:var(--compacted)}
svg .copying,svg .waiting{fill:var(--copying)}svg .expired,svg .replaced{fill:var(--expired)}
svg .standby{fill:var(--standby)}svg .gap{fill:var(--gap)}
.series h3{margin:0 0 .25rem}.series dl{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;margin:.25rem 0}
svg.spark{width:100%;height:4rem}svg.spark polyline{fill:none;stroke:var(--link);stroke-width:1.5;
vector-effect:non-scaling-stroke;stroke-linecap:round}
svg.spark .base{stroke:var(--line);vector-effect:non-scaling-stroke}
@media(forced-colors:active){svg .lane{fill:Canvas}svg rect:not(.lane){stroke:CanvasText}}
"""
STYLE: Final = (
    ":root{color-scheme:light dark;" + _LIGHT + "}@media(prefers-color-scheme:dark){:root{" + _DARK + "}}"
    "" + _RULES.replace("\n", "")
)
"""Content of the element ``style``."""

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; style-src 'sha256-"
    + base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    + "'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Header of every page: its own style, no script, and nothing from elsewhere."""
