package ginlock_test

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/latchkit/latchkit/ginlock"
	"github.com/latchkit/latchkit/internal/adaptertest"
)

func BenchmarkOverhead(b *testing.B) {
	service := func(middlewares ...gin.HandlerFunc) http.Handler {
		engine := gin.New()
		engine.Use(middlewares...)
		engine.POST("/orders/:orderID/pay", func(c *gin.Context) { c.Status(http.StatusCreated) })
		return engine
	}
	adaptertest.BenchmarkOverhead(b, service(), func(o adaptertest.Options) http.Handler {
		return service(ginlock.ByParam("orderID", options.Make(adaptertest.HTTPOptions{Options: o})...))
	})
}
