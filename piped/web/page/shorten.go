package page

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of a headline, in characters.
const (
	headlineLength = 120
	wordLength     = 40 // a longer word at the end of a headline is cut
)

// abbreviations end with a full stop that ends no sentence.
var abbreviations = []string{"e.g.", "i.e.", "etc.", "cf.", "vs.", "approx.", "ca.", "incl.", "resp.", "al.", "st.", "dr.", "mr.", "mrs."}

// shortened returns the headline of a text, which is its first line or sentence, cut at a word if
// it is long. more reports that the text says more.
func shortened(text string) (headline string, more bool) {
	text = strings.TrimSpace(withoutEscapes(text))
	line, _, _ := strings.Cut(text, "\n")
	line = strings.TrimSpace(line)
	first := firstSentence(line)
	headline = withCause(first, cutAtWord(first))
	if headline == first && first == line && line != text && !endsSentence(line) {
		headline += " …" // the line goes on
	}
	return headline, headline != text
}

// causeMark begins the part of a reason that names a pod and its trouble, after what it led to.
const causeMark = "; pod "

// withCause returns a headline of a text that says what the pod's trouble is, if the text does.
func withCause(text, headline string) string {
	at := strings.Index(text, causeMark)
	if headline == text || at < 0 || utf8.RuneCountInString(text[:at]) < headlineLength/2 {
		return headline
	}
	lead, _, _ := strings.Cut(text[:at], ": ")
	if utf8.RuneCountInString(lead) > wordLength {
		lead = string([]rune(lead)[:wordLength])
	}
	return cutAtWord(lead + " … " + text[at+len("; "):])
}

// headlineOf returns the headline of a text.
func headlineOf(text string) string {
	headline, _ := shortened(text)
	return headline
}

// firstSentence returns a line up to the end of its first sentence.
func firstSentence(line string) string {
	for i, r := range line {
		end := i + utf8.RuneLen(r)
		switch r {
		case '。', '！', '？':
			return line[:end]
		case '.', '!', '?':
			if startsSentence(line[end:]) && !abbreviated(line[:end]) {
				return line[:end]
			}
		}
	}
	return line
}

// startsSentence reports whether what follows a full stop is a space and a capital letter.
func startsSentence(rest string) bool {
	next := strings.TrimLeftFunc(rest, unicode.IsSpace)
	r, _ := utf8.DecodeRuneInString(strings.TrimLeft(next, `"'“‘(`))
	return len(next) < len(rest) && unicode.IsUpper(r)
}

// abbreviated reports whether a text ends with an abbreviation or an initial.
func abbreviated(text string) bool {
	word := strings.TrimLeft(text[strings.LastIndexFunc(text, unicode.IsSpace)+1:], `"'“‘(`)
	return utf8.RuneCountInString(word) <= 2 || slices.Contains(abbreviations, strings.ToLower(word))
}

// cutAtWord returns a text of at most headlineLength characters. It cuts only a word that would
// leave too little of the text.
func cutAtWord(text string) string {
	runes := []rune(text)
	if len(runes) <= headlineLength {
		return text
	}
	cut := headlineLength - 2 // a space and the ellipsis follow
	for n := cut; n >= cut-wordLength; n-- {
		if unicode.IsSpace(runes[n]) {
			return strings.TrimRight(string(runes[:n]), " \t,;:–—(") + " …"
		}
	}
	for cut > headlineLength/2 && joined(runes[cut-1], runes[cut]) {
		cut--
	}
	return string(runes[:cut]) + "…"
}

// joined reports whether two runes are parts of one character, such as a letter and its accent.
func joined(before, after rune) bool {
	const joiner = '\u200d'
	return before == joiner || after == joiner || unicode.Is(unicode.M, after) || after >= 0x1f3fb && after <= 0x1f3ff
}

// endsSentence reports whether a text ends as a sentence does, or was cut.
func endsSentence(text string) bool {
	r, _ := utf8.DecodeLastRuneInString(text)
	return strings.ContainsRune(".!?…。！？", r)
}

// stopped returns a text with a full stop, unless it has an end.
func stopped(text string) string {
	if endsSentence(text) {
		return text
	}
	return text + "."
}
