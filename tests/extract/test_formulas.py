"""A formula is the same LaTeX in every kind of file, in its place, with all its signs."""

import io
import re
import zipfile

import pytest

from recollect.extract.office import _equations
from recollect.extract.web import _page
from tests.extract import office
from tests.extract.test_html import ARTICLE

MATHML = (
    '<math xmlns="http://www.w3.org/1998/Math/MathML"><semantics><mrow><mi>x</mi><mo>=</mo><mfrac>'
    "<mrow><mo>−</mo><mi>b</mi><mo>±</mo><msqrt><msup><mi>b</mi><mn>2</mn></msup></msqrt></mrow>"
    "<mrow><mn>2</mn><mo>&#x2062;</mo><mi>a</mi></mrow></mfrac></mrow>"
    '<annotation encoding="application/x-tex">Buy now!</annotation></semantics></math>'
)
OMML = (
    '<m:oMath xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math">'
    "<m:r><m:t>x=</m:t></m:r><m:f><m:num><m:r><m:t>−b±</m:t></m:r><m:rad><m:radPr>"
    '<m:degHide m:val="1"/></m:radPr><m:deg/><m:e><m:sSup><m:e><m:r><m:t>b</m:t></m:r></m:e><m:sup>'
    "<m:r><m:t>2</m:t></m:r></m:sup></m:sSup></m:e></m:rad></m:num><m:den><m:r><m:t>2a</m:t></m:r>"
    "</m:den></m:f></m:oMath>"
)
LATEX = r"x=\frac{−b±\sqrt{b^2}}{2a}"
XLINK = 'xmlns:xlink="http://www.w3.org/1999/xlink"'
OBJECT = f'<draw:object {XLINK} xlink:href="./F"/>'
IN_ODT = f'<draw:frame text:anchor-type="as-char">{OBJECT}</draw:frame>'
IN_PPTX = (
    '<p:sp xmlns:mc="urn:mc" xmlns:a14="urn:a14"><p:txBody><a:p><a:r><a:t>Of </a:t></a:r>'
    f"<mc:AlternateContent><mc:Choice><a14:m>{OMML}</a14:m></mc:Choice><mc:Fallback><a:r>"
    f"<a:t>picture</a:t></a:r>{OMML}</mc:Fallback></mc:AlternateContent><a:r><a:t> all</a:t></a:r>"
    "</a:p></p:txBody></p:sp>"
)


IN_RTF = (
    r"{\mmath{\*\moMath{\mr\mscr0\msty2 x=}{\mf{\mfPr{\mctrlPr\i }}{\mnum{\mr\u8722?b\'b1}{\mrad"
    r"{\mradPr{\mdegHide on}}{\mdeg}{\me{\msSup{\me{\mr b}}{\msup{\mr 2}}}}}}{\mden{\mr 2a}}}}"
    r"{\mmathPict{\pict\pngblip 89504e47}{\mr b}}}"
)


def _with_object(packed: bytes, formula: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(packed)) as parts:
        content = {name: parts.read(name) for name in parts.namelist()}
    return office.packed(content | {"F/content.xml": formula.encode()})


def _odp(formula: str) -> bytes:
    slide = f'<draw:page><draw:frame presentation:class="object">{OBJECT}</draw:frame></draw:page>'
    return _with_object(office.odf("presentation", slide), formula)


PREFIXED = re.sub("(</?)", r"\1m:", MATHML).replace("xmlns", "xmlns:m")
FILES = {
    "a.html": lambda: f"<html><body><p>{ARTICLE}</p><p>Of {MATHML} all</p></body></html>".encode(),
    "a.epub": lambda: office.epub({"a.xhtml": f"<p>Of {MATHML} all</p>"}),
    "prefixed.epub": lambda: office.epub({"a.xhtml": f"<p>Of {PREFIXED} all</p>"}),
    "a.eml": lambda: office.eml(
        lambda mail: mail.set_content(f"<p>Of {MATHML} all</p>", subtype="html")
    ),
    "a.docx": lambda: office.docx(
        f"<w:p><w:r><w:t>Of </w:t></w:r>{OMML}<w:r><w:t> all</w:t></w:r></w:p>"
    ),
    "a.rtf": lambda: f"{{\\rtf1\\ansi Of {IN_RTF} all}}".encode(),
    "a.odt": lambda: _with_object(office.odf("text", f"<text:p>Of {IN_ODT} all</text:p>"), MATHML),
    "a.pptx": lambda: office.pptx([("Roots", [])], extra=IN_PPTX),
}


@pytest.mark.parametrize("name", FILES)
def test_a_formula_is_the_same_in_every_kind(read, name):
    assert f"Of ${LATEX}$ all" in read(FILES[name](), name).text


@pytest.mark.parametrize(
    ("written", "text"),
    {
        r"\moMathPara{\moMathParaPr\mJc1}{\*\moMath\i{\mf{\mnum\i\u-10187?\u-9138?}{\mden b}}}": (
            "$$\\frac{\U0001d44e}{b}$$"
        ),
        r"\moMath{\md{\mdPr{\mbegChr \{}{\mendChr \}}}{\me{\mr x_1}}}": r"$\{x\_1\}$",
        r"\moMath{\mr\mnor if so }{\mr x}{\mr\msty0 sin}{\mr y}": r"$\text{if so }x sin y$",
        r"\moMath{\mnary{\mnaryPr{\mchr \u8721?}}{\msub i}{\me{\uc0\mr\u945 x}}}": "$∑_i αx$",
        r"\moMath": "",
    }.items(),
)
def test_equations_of_an_rtf_become_latex(read, written, text):
    found = read(f"{{\\rtf1 Of {{\\mmath{{\\*{written}}}}} all}}", "a.rtf").text

    assert found.split() == f"Of {text} all".split()


def test_a_formula_on_a_slide_of_an_odp_is_read(read):
    assert read(_odp(MATHML), "a.odp").text == f"$${LATEX}$$"


def test_a_formula_on_a_sheet_of_an_ods_is_read(read):
    cells = (
        "<table:table-row><table:table-cell><text:p>a</text:p></table:table-cell></table:table-row>"
    )
    sheet = (
        f'<table:table table:name="S"><table:shapes><draw:frame>{OBJECT}</draw:frame>'
        f"</table:shapes>{cells}</table:table>"
    )

    assert (
        f"$${LATEX}$$" in read(_with_object(office.odf("spreadsheet", sheet), MATHML), "a.ods").text
    )


@pytest.mark.parametrize(
    ("mathml", "latex"),
    {
        "<mroot><mi>x</mi><mn>3</mn></mroot>": r"\sqrt[3]{x}",
        '<mo>(</mo><mfrac linethickness="0"><mi>n</mi><mi>k</mi></mfrac><mo>)</mo>': (
            r"({n \atop k})"
        ),
        "<munderover><mo>∑</mo><mrow><mi>k</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover>"
        "<msub><mi>a</mi><mi>k</mi></msub>": "∑_{k=1}^n a_k",
        "<mtext>rate of growth</mtext><mo> = </mo><mn>50</mn><mo>%</mo>": (
            r"\text{rate of growth}=50\%"
        ),
        "<mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr><mtr><mtd><mn>3</mn></mtd>"
        "</mtr></mtable>": r"\begin{matrix}1 & 2 \\ 3\end{matrix}",
        "<msubsup><mi>x</mi><mn>1</mn><mrow><mn>2</mn><mi>y</mi></mrow></msubsup>": "x_1^{2y}",
        "<msup><mi></mi><mn>2</mn></msup>": "{}^2",
        "<msup><msup><mi>x</mi><mn>2</mn></msup><mn>3</mn></msup>": "{x^2}^3",
        "<msup><msub><mi>x</mi><mn>1</mn></msub><mn>2</mn></msup>": "x_1^2",
        "<msup><msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup><mn>3</mn></msup>": "{x_1^2}^3",
        "<mover><mi>x</mi><mo>^</mo></mover><mover><mi>v</mi><mo>→</mo></mover>": (
            r"\hat{x}\vec{v}"
        ),
        "<munder><mi>lim</mi><mi>n</mi></munder>": "lim_n",
        "<mmultiscripts><mi>U</mi><mn>0</mn><none/><mprescripts/><mn>92</mn><mn>238</mn>"
        "</mmultiscripts>": "{}_{92}^{238}U_0",
        "<mfenced open='[' close=')' separators=';'><mi>a</mi><mi>b</mi></mfenced>": "[a;b)",
        "<mi>a</mi><mi>sin</mi><mo>&#x2061;</mo><mi>x</mi>": "a sin x",
        "<mn>2</mn><mo>sin</mo><mi>x</mi>": "2 sin x",
        "<mi>a</mi><mi>b</mi><mi>c</mi>": "abc",
        "<mo>|</mo><mi>x_y</mi><mo>|</mo>": r"\vert x\_y\vert",
        "<mi>x</mi><mphantom><mi>y</mi></mphantom>": "x",
        "x + y": "x + y",
        "<mo>∫<!-- ∫ --></mo><!-- > --><mi>x</mi>": "∫x",
        "<mstyle><mi>x</mi></mstyle> or <menclose><mi>y</mi></menclose>": "x or y",
        "<mfrac><mn>1</mn></mfrac>": r"\frac{1}{}",
        # KaTeX has parts in its operators.
        "<mi>a</mi><mo><mrow><mi>m</mi><mi>o</mi><mi>d</mi></mrow></mo><mi>b</mi>": "a mod b",
        "<mo><mover><mo><mo>=</mo></mo><mo>?</mo></mover></mo>": "=^?",
        "<mtext>if <b>all</b> of <i>it</i></mtext>": r"\text{if all of it}",
        "<mi>x</mi><mtext> and </mtext><mi>y</mi>": r"x\text{ and }y",
        "<munder><mi>x</mi><mo>‾</mo></munder><mover><mi>y</mi><mo>´</mo></mover>": (
            r"\underline{x}\acute{y}"
        ),
        "<msub><msub><mi>x</mi><msub><mi>a</mi><msub><mi>b</mi><mi>c</mi></msub></msub></msub>"
        "<mn>2</mn></msub>": "{x_{a_{b_c}}}_2",
        "<msup><mrow><mo>{</mo><mi>x</mi><mo>}</mo></mrow><mn>2</mn></msup>": r"\{x\}^2",
        "<msup/><msqrt/><mtable/><mmultiscripts/><mfenced/>": (
            r"{}\sqrt{}\begin{matrix}\end{matrix}{}()"
        ),
    }.items(),
)
def test_mathml_becomes_latex(mathml, latex):
    letter = f"<p><math>{mathml}</math></p>".encode()

    assert _page.read_letter(letter, "text/html").text == f"${latex}$"


def _part(name: str, *parts: str) -> str:
    return f"<m:{name}>{''.join(parts)}</m:{name}>"


def _run(text: str) -> str:
    return f"<m:r><m:t>{text}</m:t></m:r>"


def _property(of: str, **values: str) -> str:
    return _part(
        f"{of}Pr",
        *(f'<m:{name} m:val="{value}"/>' for name, value in values.items()),
        _part("ctrlPr", "<w:rPr><w:i/></w:rPr>"),
    )


E, X = _part("e", _run("x")), _run("x")


@pytest.mark.parametrize(
    ("omml", "latex"),
    {
        _part("rad", _part("deg", _run("3")), E): r"\sqrt[3]{x}",
        _part("nary", _property("nary", chr="∑"), _part("sub", X), _part("sup", _run("n")), E): (
            "∑_x^n x"
        ),
        _part("nary", _part("sub"), _part("sup"), E): "∫ x",
        _part("d", _property("d", begChr="[", endChr=""), E): "[x",
        _part("d", E, E): r"(x\vert x)",
        _part("f", _property("f", type="noBar"), _part("num", X), _part("den", X)): r"{x \atop x}",
        _part("acc", _property("acc", chr="⃗"), E): r"\vec{x}",
        _part("acc", E): r"\hat{x}",
        _part("bar", _property("bar", pos="top"), E): r"\overline{x}",
        _part("groupChr", E): r"\underbrace{x}",
        _part("func", _part("fName", _run("sin")), E): "sin x",
        _part("func", _part("fName", _part("limLow", E, _part("lim", _run("n→0")))), E): (
            "x_{n→0} x"
        ),
        _part("m", _part("mr", E, E), _part("mr", E, E)): (
            r"\begin{matrix}x & x \\ x & x\end{matrix}"
        ),
        _part("eqArr", E, E): r"\begin{matrix}x \\ x\end{matrix}",
        _part("sPre", _part("sub", X), _part("sup", X), E): "{}_x^x x",
        _part("r", _part("rPr", "<m:nor/>"), "<m:t>if so </m:t>") + X: r"\text{if so }x",
        _part("r", _property("r", sty="p"), "<m:t>sin</m:t>") + X + _run("ab"): "sin xab",
        _part("phant", _property("phant", zeroAsc="1"), E): "x",
        _part("phant", _property("phant", show="0"), E) + _run("y"): "y",
        f"<w:ins>{_run('a')}</w:ins><w:del>{_run('b')}</w:del>" + X: "ax",
        _part("sSub", E): "x",
        _part("box", E) + _run(" 100%"): r"x 100\%",
    }.items(),
)
def test_equations_of_office_become_latex(omml, latex):
    source = f"<w:p><m:oMath>{omml}</m:oMath></w:p>".encode()
    words = re.search("<w:t[^>]*>(.*)</w:t>", _equations.in_word(source).decode())

    assert words is not None
    assert _page._formulas.plain(words[1]) == f"${latex}$"


WIKIPEDIA = (
    '<span class="mwe-math-element"><span class="mwe-math-mathml-inline" style="display: none;">'
    '<math alttext="x"><mi>x</mi></math></span><img class="mwe-math-fallback-image-{}" '
    'aria-hidden="true" alt="{{\\displaystyle x^{{2}}*y^{{2}}*z}}"></span>'
)
KATEX = (
    f'<span class="katex"><span class="katex-mathml">{MATHML}</span>'
    '<span class="katex-html" aria-hidden="true"><span class="base">x</span></span></span>'
)
MATHJAX_3 = (
    '<mjx-container><mjx-math aria-hidden="true"><mjx-mi>x</mjx-mi></mjx-math>'
    f"<mjx-assistive-mml>{MATHML}</mjx-assistive-mml></mjx-container>"
)
MATHJAX_4 = (
    '<mjx-container display="{}"><mjx-math data-latex="x^{{2}}" aria-hidden="true"><mjx-msup '
    'data-latex="x^{{2}}"><mjx-c>𝑥</mjx-c></mjx-msup></mjx-math></mjx-container>'
)
DRAWN = {
    r'<img class="tex" src="math/a.png" alt="\alpha_1">': r"$\alpha_1$",
    r'<img class="latex" src="https://s0.wp.com/latex.php?latex=x_1" alt="x_1">': "$x_1$",
    r'<img class="math" src="_images/math/5.png" alt="\alpha_{1}">': r"$\alpha_{1}$",
    r'<img class="formulaInl" src="form_0.png" alt="$x_1$">': "$x_1$",
    r'<img class="formulaDsp" src="form_1.png" alt="\[ \int_0^1 \]">': r"$$\int_0^1$$",
    r'<img src="https://latex.codecogs.com/svg.image?x_2" alt="x_2">': "$x_2$",
}
MATHJAX_2 = (
    '<span class="MathJax_Preview">drawn</span><span class="MathJax"><nobr aria-hidden="true">'
    f"drawn</nobr><span>{MATHML}</span></span>"
    f'<script type="math/tex">{LATEX}</script>'
)


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        (WIKIPEDIA.format("inline"), "$x^{2}*y^{2}*z$"),
        (WIKIPEDIA.format("display"), "$$x^{2}*y^{2}*z$$"),
        (WIKIPEDIA.format("inline").replace("<img", "<noscript><img"), "$x^{2}*y^{2}*z$"),
        (KATEX, f"${LATEX}$"),
        (KATEX.replace(MATHML, ""), "x"),
        (MATHJAX_3, f"${LATEX}$"),
        (MATHJAX_4.format("false"), "$x^{2}$"),
        (MATHJAX_4.format("true"), "$$x^{2}$$"),
        *DRAWN.items(),
        (MATHJAX_2, f"${LATEX}$"),
        (MATHJAX_2.replace("tex", "tex; mode=display"), f"$${LATEX}$$"),
        (f'<span style="display: none">{MATHML}</span>', ""),
        (MATHML.replace("<math", '<math style="display: none"'), ""),
        (MATHJAX_4.format('" style="display: none'), ""),
        (WIKIPEDIA.format('inline" style="display: none'), ""),
        ('<img class="math" style="display: none" alt="Buy now">', ""),
        ("<math><mi>x</mi><mi hidden>Buy now</mi></math>", "$x$"),
        ('<math><mi>x</mi><mstyle mathcolor="white"><mtext>Buy now</mtext></mstyle></math>', "$x$"),
        (
            '<math><mtext mathcolor="white" mathbackground="#000">all seen</mtext></math>',
            r"$\text{all seen}$",
        ),
        (MATHML.replace("<math", '<math display="block"'), f"$${LATEX}$$"),
    ],
)
def test_a_page_shows_a_formula_once_however_it_draws_it(read, markup, text):
    page = f"<html><body><main><h1>Roots</h1><p>{ARTICLE}</p><p>Of {markup} all</p></main></body>"

    found = read(page, url="https://a.test/").text

    assert found.partition(ARTICLE)[2].split() == f"Of {text} all".split()
    assert "Buy now" not in found


def test_formulas_that_stand_by_themselves_are_paragraphs():
    block = '<math display="block"><mi>{}</mi></math>'
    markup = f"<p>If {block.format('x')} and</p><div>{block.format('y')}{block.format('z')}</div>"
    cell = f"<table><tr><th>a</th></tr><tr><td>so {block.format('x')} or</td></tr></table>"

    text = _page.read_letter((markup + cell).encode(), "text/html").text

    paragraphs = ["If", "$$x$$", "and", "$$y$$", "$$z$$", "| a |\n| --- |\n| so $$x$$ or |"]
    assert text == "\n\n".join(paragraphs)


def test_a_formula_does_not_end_its_cell_of_a_table():
    cell = "<math><mo>|</mo><mi>x</mi><mo>|</mo></math>"
    table = f"<table><tr><th>a</th><th>b</th></tr><tr><td>{cell}</td><td>1</td></tr></table>"

    text = _page.read_letter(table.encode(), "text/html").text

    assert r"| $\vert x\vert$ | 1 |" in text


def test_damaged_formulas_cost_nothing_else(read):
    assert read(_odp("<math><mi>x"), "a.odp").text == ""
    body = f"<text:p>Of {IN_ODT} all</text:p>"
    damaged = _with_object(office.odf("text", body), "<math><mi>x")

    assert " ".join(read(damaged, "a.odt").text.split()) == "Of all"


@pytest.mark.parametrize(
    "inner",
    [
        "<mrow>" * 1_500 + "<mi>x</mi>",
        "<msup><mi>a</mi>" * 1_200 + "<mi>x</mi>",
        "<mi>x</mi>" * 300_000,
    ],
)
def test_deep_and_long_formulas_are_read(inner):
    text = _page.read_letter(f"<p><math>{inner}</math></p>".encode(), "text/html").text

    assert "x" in text


def test_equations_that_never_end_take_no_longer():
    source = b"<w:p><!--" + b"<m:oMath> <m:oMathPara> " * 100_000 + b"--></w:p>"

    assert _equations.in_word(source) == source


def test_pages_of_latexml_keep_their_numbers(read):
    tag = '<span class="ltx_tag ltx_tag_{}">{}</span>'.format
    note = f'<span class="ltx_note"><sup>1</sup>{tag("note", "1")}Noted</span>'
    page = (
        f"<main><h2>{tag('section', '4 ')}Roots</h2><p>{ARTICLE}</p><h6>{tag('theorem', 'Lemma 7')}"
        f"</h6><p>By <span class='ltx_ref_tag'>3</span> so {note}</p><table><tr><td>{MATHML}</td>"
        f"<td>{tag('equation', '(3)')}</td></tr></table></main>"
    )

    text = read(page, "a.html", url="https://a.test/").text

    assert text.startswith("## 4 Roots")
    assert text.partition(ARTICLE)[2].split("\n\n")[1:] == [
        "###### Lemma 7",
        "By 3 so 1Noted",
        f"| ${LATEX}$ | (3) |\n| --- | --- |",
    ]
