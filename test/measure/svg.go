package measure

import (
	"fmt"
	"math"
	"strings"
	"text/template"
)

// Chart is a line chart.
type Chart struct {
	Title, X, Y string
	Lines       []Line
}

// Line is a series of points, in the order of X.
type Line struct {
	Name   string
	Points []Point
}

// Point is a point of a line.
type Point struct{ X, Y float64 }

// Sizes of a chart in pixels. The margins hold the titles, the names of the lines
// and the numbers at the axes.
const (
	chartWidth, chartHeight = 640, 300
	marginX, marginY        = 60, 40
	plotWidth, plotHeight   = chartWidth - 2*marginX, chartHeight - 2*marginY
	ticksOfAxis             = 5
	legendX, legendOfLine   = 420, 90
)

var colors = []string{"#4477aa", "#ee6677", "#228833", "#ccbb44"}

var charts = template.Must(template.New("charts").Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{.Width}} {{.Height}}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
{{- range .Charts}}
<g transform="translate(0 {{.Top}})">
<text x="{{.Left}}" y="20" font-size="14">{{.Title | html}}</text>
{{- range .Grid}}
<line x1="{{.X1}}" y1="{{.Y1}}" x2="{{.X2}}" y2="{{.Y2}}" stroke="#dddddd"/>
<text x="{{.TextX}}" y="{{.TextY}}" text-anchor="{{.Anchor}}">{{.Text}}</text>
{{- end}}
<text x="{{.Right}}" y="{{.Bottom}}" text-anchor="end">{{.X | html}}</text>
{{- range .Lines}}
<polyline fill="none" stroke="{{.Color}}" stroke-width="2" points="{{.Points}}"/>
<text x="{{.LegendX}}" y="20" fill="{{.Color}}">{{.Name | html}}</text>
{{- end}}
</g>
{{- end}}
</svg>
`))

// SVG draws charts below each other.
func SVG(all []Chart) (string, error) {
	type page struct {
		Width, Height int
		Charts        []drawnChart
	}
	p := page{Width: chartWidth, Height: chartHeight * len(all)}
	for i, chart := range all {
		p.Charts = append(p.Charts, chart.draw(i*chartHeight))
	}
	var b strings.Builder
	if err := charts.Execute(&b, p); err != nil {
		return "", fmt.Errorf("drawing charts: %w", err)
	}
	return b.String(), nil
}

type drawnChart struct {
	Title, X                 string
	Top, Left, Right, Bottom int
	Grid                     []gridLine
	Lines                    []drawnLine
}

type gridLine struct {
	X1, Y1, X2, Y2, TextX, TextY float64
	Anchor, Text                 string
}

type drawnLine struct {
	Name, Color, Points string
	LegendX             int
}

func (c Chart) draw(top int) drawnChart {
	var mostX, mostY float64
	for _, line := range c.Lines {
		for _, p := range line.Points {
			mostX, mostY = max(mostX, p.X), max(mostY, p.Y)
		}
	}
	stepX, stepY := tick(mostX), tick(mostY)
	endX, endY := stepX*math.Ceil(mostX/stepX), stepY*math.Ceil(mostY/stepY)
	x := func(v float64) float64 { return marginX + v/endX*plotWidth }
	y := func(v float64) float64 { return chartHeight - marginY - v/endY*plotHeight }

	drawn := drawnChart{
		Title: c.Title + ", " + c.Y, X: c.X, Top: top,
		Left: marginX, Right: chartWidth - marginX, Bottom: chartHeight - marginY/8,
	}
	for v := 0.0; v <= endY; v += stepY {
		drawn.Grid = append(drawn.Grid, gridLine{x(0), y(v), x(endX), y(v), x(0) - 6, y(v) + 4, "end", fmt.Sprintf("%g", v)})
	}
	for v := 0.0; v <= endX; v += stepX {
		drawn.Grid = append(drawn.Grid, gridLine{x(v), y(0), x(v), y(0), x(v), y(0) + 16, "middle", fmt.Sprintf("%g", v)})
	}
	for i, line := range c.Lines {
		var points []string
		for _, p := range line.Points {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(p.X), y(p.Y)))
		}
		drawn.Lines = append(drawn.Lines, drawnLine{
			Name: line.Name, Color: colors[i%len(colors)], Points: strings.Join(points, " "),
			LegendX: legendX + legendOfLine*i,
		})
	}
	return drawn
}

// tick is a round distance between the numbers at an axis that ends at the value.
func tick(most float64) float64 {
	if most <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(most/ticksOfAxis)))
	for _, factor := range []float64{1, 2, 5} {
		if most/(factor*power) <= ticksOfAxis {
			return factor * power
		}
	}
	return 10 * power
}
