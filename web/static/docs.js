// Starts Swagger UI on the API's own document.
(() => {
  "use strict";
  const place = document.getElementById("swagger-ui");
  const csrf = place.dataset.csrf;
  SwaggerUIBundle({
    url: place.dataset.document,
    domNode: place,
    deepLinking: true,
    validatorUrl: null,
    presets: [SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
    requestInterceptor: (request) => {
      if (csrf) request.headers["X-CSRF-Token"] = csrf;
      // An open farm takes a change by its content type, even where there is no body.
      if (request.method !== "GET") request.headers["Content-Type"] ??= "application/json";
      return request;
    },
  });
})();
